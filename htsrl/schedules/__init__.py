"""When things happen: small pure decisions about versions and storages."""
