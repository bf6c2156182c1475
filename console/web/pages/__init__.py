"""One file for each page: from what is known of the cluster to the model that is shown."""
