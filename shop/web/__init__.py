"""The pages that Django renders for buyers, and the words on them."""
