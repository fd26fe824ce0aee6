"""The benchmarks' own load generator. Never uses the code of the shop."""
