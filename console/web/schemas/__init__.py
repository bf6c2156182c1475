"""Values that mean something by a schema: Avro, Protobuf, JSON Schema; decoders of one's own."""
