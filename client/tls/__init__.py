"""TLS for whoever dials or serves: stores of keys and certificates, contexts made of them."""
