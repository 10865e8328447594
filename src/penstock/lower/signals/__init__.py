"""From temporal expressions to loops."""
