"""A team's engines, real ones on loopback: Postgres, Redis, an S3 store, MLflow's server, Dagster's."""
