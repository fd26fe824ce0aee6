"""A long public log: what a checkpoint, a proof, a stranger's check and the page's first result take."""
