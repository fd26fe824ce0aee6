"""What staff do and see: the control room, stock, orders, retiring a sale."""
