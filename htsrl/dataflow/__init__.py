"""What passes between the roles: storages, requests and answers, versioned parameters, signals."""
