"""Measures what the SKUs of all other shards go on with while one shard of a Cluster is away."""
