"""A team's services, real ones on loopback: Postgres, Redis, an S3 store, MLflow's server, Dagster's processes."""
