"""A Comfy Router on loopback, true to the public contract, with a ledger and fault switches."""
