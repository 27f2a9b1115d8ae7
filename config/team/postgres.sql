-- The database podium is the ledger's; Dagster and MLflow have their own, which may lie on other servers.
CREATE DATABASE dagster;
CREATE DATABASE mlflow;
