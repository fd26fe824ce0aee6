"""The people of the crowd: what they ask, how they wait, pay, give up. They know only what HTTP tells them."""
