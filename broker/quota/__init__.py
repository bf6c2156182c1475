"""How much peers may ask for: rates, who they belong to, and what is over them."""
