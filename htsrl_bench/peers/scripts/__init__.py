"""What runs inside the peers' virtual environments: on their path as the package `peer`, never imported from here."""
