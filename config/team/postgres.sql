-- The database podium is the ledger's; Dagster and MLflow have their own, which may lie on other servers.
-- Texts of questions and answers need UTF-8, whatever the server's locale is.
CREATE DATABASE dagster ENCODING 'UTF8' TEMPLATE template0;
CREATE DATABASE mlflow ENCODING 'UTF8' TEMPLATE template0;
