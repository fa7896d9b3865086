"""The record of everything: tables, transactions, queries. The only part that knows the database."""
