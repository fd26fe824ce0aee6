"""What staff do with many orders and sales at once: find, export, add up money, refund or cancel in bulk."""
