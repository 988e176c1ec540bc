"""What tests, client round trips and benches share: a server to talk to, and ways to talk to it."""
