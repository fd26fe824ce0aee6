#!/bin/sh
# Makes the shop's role and database on the first start; the shop is never a superuser. Run by the postgres image.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$FAIRDROP_DB_PASSWORD" --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE fairdrop LOGIN PASSWORD :'password';
CREATE DATABASE fairdrop OWNER fairdrop;
SQL
