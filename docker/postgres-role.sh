#!/bin/sh
# Makes the shop's database, its owner `fairdrop`, which migrates and is never a superuser, and a role for each kind of
# process, which owns nothing; `manage.py migrate` grants each what it needs. Run by the postgres image at the first
# start. Run it again to add roles to an older database, or to change passwords.
set -eu
run() { psql -v ON_ERROR_STOP=1 --quiet --username "${POSTGRES_USER:-postgres}" "$@"; }

make_role() { # make_role NAME PASSWORD
  run --dbname postgres -v name="$1" -v password="$2" <<'SQL'
SELECT format('CREATE ROLE %I LOGIN', :'name') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'name') \gexec
ALTER ROLE :"name" PASSWORD :'password';
SQL
}

make_role fairdrop "$FAIRDROP_DB_PASSWORD"
run --dbname postgres <<'SQL'
SELECT 'CREATE DATABASE fairdrop OWNER fairdrop' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'fairdrop')
\gexec
REVOKE ALL ON DATABASE fairdrop FROM PUBLIC;
SQL
run --dbname fairdrop --command "REVOKE CREATE ON SCHEMA public FROM PUBLIC"

for kind in web settler expirer payments reconciler mailer notary; do
  make_role "fairdrop_$kind" "$(printenv "FAIRDROP_$(echo "$kind" | tr '[:lower:]' '[:upper:]')_PASSWORD")"
  run --dbname postgres --command "GRANT CONNECT ON DATABASE fairdrop TO fairdrop_$kind"
done
