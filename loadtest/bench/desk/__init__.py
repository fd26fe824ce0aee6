"""The lists of staff in a shop with many orders: what a page takes, and all orders as CSV."""
