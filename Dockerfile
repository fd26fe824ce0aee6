# Two images: `shop` runs web, settlers and migrations; `load` adds the crowd.
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS shop
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 10001 fairdrop
WORKDIR /srv/fairdrop
COPY requirements/image.txt requirements/
RUN pip install --require-hashes -r requirements/image.txt
COPY manage.py ./
COPY pyproject.toml ./
COPY inventory inventory
COPY shop shop
COPY workers workers
# The shop's user cannot write here: each start would compile every module again.
RUN python -m compileall -q inventory shop workers
# Production refuses to start without settings; these are made for this one command and kept nowhere.
RUN KEY="$(python -c 'import secrets; print(secrets.token_hex(32))')" && \
    FAIRDROP_ENV=production ALLOWED_HOSTS=localhost FAIRDROP_BEHIND_TLS=false FAIRDROP_PUBLIC_URL=http://localhost \
    DATABASE_URL=postgresql://none:none@none REDIS_URL=redis://:none@none \
    SECRET_KEY="$KEY" FAIRDROP_TOKEN_KEYS="$KEY" FAIRDROP_PAYMENT_PROVIDERS=none=none \
    python manage.py collectstatic --noinput
# A new volume takes its owner from the folder it is laid over.
RUN mkdir /srv/media && chown fairdrop /srv/media
USER 10001
EXPOSE 8000
CMD ["python", "manage.py", "run_web", "--host", "0.0.0.0", "--port", "8000", "--drain", "5"]

FROM shop AS load
USER 0
COPY requirements/load.txt requirements/
RUN pip install --require-hashes -r requirements/load.txt
COPY locust.conf ./
COPY loadtest loadtest
RUN mkdir /flood && chown fairdrop /flood
USER 10001
CMD ["locust"]
