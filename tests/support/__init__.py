"""What several tests share: servers of their own, databases, fakes for the ports, a loopback host."""
