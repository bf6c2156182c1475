"""Who may do what: access control lists, as Kafka's AclAuthorizer keeps and judges them."""
