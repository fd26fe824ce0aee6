"""The sales: what is offered on which terms, how fast it goes, whether its books balance."""
