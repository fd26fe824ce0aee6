"""Reads every setting from the environment, with safe defaults for a laptop. Never starts unsafe in production.
Holds no secret. Names and meanings of the variables: .env.example.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import math
import os
import re
import secrets
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from shop.logs import logging_config
from shop.production import is_live, refusals

CHECKOUT = Path(__file__).resolve().parent.parent
# Where .env and what is written are: the checkout; with the installed wheel, the folder in which a command is started.
BASE_DIR = CHECKOUT if (CHECKOUT / "manage.py").exists() else Path.cwd()
env = environ.Env()
# What is told to be no production takes nothing of a .env, which may be production's.
if os.environ.get("FAIRDROP_ENV") not in ("development", "test"):
    environ.Env.read_env(BASE_DIR / ".env", overwrite=False)

STATE_DIR = Path(env.str("FAIRDROP_STATE_DIR", default="") or BASE_DIR / ".fairdrop")
# A running demo writes the addresses of its servers here, so that manage.py alongside it finds the same ones.
environ.Env.read_env(STATE_DIR / "demo.env", overwrite=False)

ENVIRONMENT = env.str("FAIRDROP_ENV", default="development")
if ENVIRONMENT not in ("production", "development", "test"):
    raise ImproperlyConfigured(f"FAIRDROP_ENV must be production, development or test, not {ENVIRONMENT!r}")
PRODUCTION = ENVIRONMENT == "production"


def flag(name: str, *, default: bool) -> bool:
    """Return a setting that is on or off; blank is the default. A word that is neither must switch nothing off."""
    word = env.str(name, default="").strip().lower()
    if word not in {"", *env.BOOLEAN_TRUE_STRINGS, "false", "off", "n", "no", "0"}:
        raise ImproperlyConfigured(f"{name} must be true or false, not {word!r}")
    return word in env.BOOLEAN_TRUE_STRINGS if word else default


def number(name: str, *, default: float, at_least: float, at_most: float = math.inf) -> Any:
    """Return a setting that is a number, whole if its default is; blank is the default. Raises ImproperlyConfigured."""
    text = env.str(name, default="").strip()
    try:
        found = type(default)(text or default)
    except ValueError:
        found = math.nan  # within no bounds
    if not at_least <= found <= at_most:
        kind = "a whole number" if isinstance(default, int) else "a number"
        bounds = f"of at least {at_least}" if at_most == math.inf else f"from {at_least} to {at_most}"
        raise ImproperlyConfigured(f"{name} must be {kind} {bounds}, not {text!r}")
    return found


DEBUG = flag("DEBUG", default=False)


def development_secret() -> str:
    """Return this checkout's own random secret, made once and kept in the git-ignored state folder."""
    path = STATE_DIR / "secret"
    if not path.exists():
        STATE_DIR.mkdir(parents=True, exist_ok=True)
        # Written alongside and linked into place: another process must never read half a secret.
        draft = STATE_DIR / f"secret-{secrets.token_hex(8)}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text()


def secret(name: str, *, fallback: str = "") -> str:
    """Return the secret `name` from the environment; outside production a derived one will do."""
    value: str = env.str(name, default="")
    if value or PRODUCTION:
        return value
    return fallback or development_secret()


SECRET_KEY = secret("SECRET_KEY")
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
# Keys of buyer tokens and tickets: the first signs, all verify. A new one is appended, then moved to the front.
TOKEN_KEYS = [key for key in secret("FAIRDROP_TOKEN_KEYS", fallback=f"{SECRET_KEY}:tokens").split(",") if key]
# Keys of the public logs of sales (shop/salelog/notes.py), the one that signs first; all others are known.
LOG_KEYS: list[str] = env.list("FAIRDROP_LOG_KEYS", default=[])
SALE_LOG = flag("FAIRDROP_SALE_LOG", default=bool(LOG_KEYS) or not PRODUCTION)
LOG_KEY_IS_DERIVED = SALE_LOG and not LOG_KEYS and not PRODUCTION
if LOG_KEY_IS_DERIVED:
    seed = base64.urlsafe_b64encode(hashlib.sha256(f"{SECRET_KEY}:log".encode()).digest()).rstrip(b"=").decode()
    LOG_KEYS = [f"2026-01-01T00:00:00Z={seed}"]
# Lets a load test read a sale's audit; empty means staff only.
AUDIT_TOKEN = env.str("FAIRDROP_AUDIT_TOKEN", default="")
# Makes a worker die, freeze or fail at a named place; for tests only, see inventory/fault_injection.py.
FAULT = env.str("FAIRDROP_FAULT", default="")
LOCAL_HOSTS = [] if PRODUCTION else ["127.0.0.1", "localhost", "[::1]", "testserver"]
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=LOCAL_HOSTS)
# Origins that may make unsafe calls with the buyer cookie, alongside the shop's own host.
TRUSTED_ORIGINS: list[str] = env.list("FAIRDROP_TRUSTED_ORIGINS", default=[])
CSRF_TRUSTED_ORIGINS = TRUSTED_ORIGINS
BEHIND_TLS = flag("FAIRDROP_BEHIND_TLS", default=PRODUCTION)
# Where the world reaches this shop, e.g. https://shop.example; empty: where the call in hand came in.
PUBLIC_URL = env.str("FAIRDROP_PUBLIC_URL", default="").rstrip("/")

# Pages of the shop that every page links to, by their kind: an https address, a path of this host, or mailto:.
LINKS: list[str] = env.list("FAIRDROP_SHOP_LINKS", default=[])
if not all(re.fullmatch("(terms|returns|imprint|support)=(https://|/|mailto:).*", each) for each in LINKS):
    raise ImproperlyConfigured(
        "FAIRDROP_SHOP_LINKS must be kind=address, separated by commas: terms, returns, imprint or support; an address "
        "begins with https://, / or mailto:"
    )
SHOP_LINKS = dict(each.split("=", 1) for each in LINKS)

# The payment providers: name → class (shop/payments/providers.py says what it must do); the first is the default.
SANDBOX = "shop.sandbox.provider.Sandbox"
NAMED_PROVIDERS: list[str] = env.list("FAIRDROP_PAYMENT_PROVIDERS", default=[]) or [f"sandbox={SANDBOX}"]
if not all(re.fullmatch(r"[A-Za-z0-9_-]{1,20}=[A-Za-z_][\w.]*", each) for each in NAMED_PROVIDERS):
    raise ImproperlyConfigured("FAIRDROP_PAYMENT_PROVIDERS must be name=class, separated by commas without spaces")
PAYMENT_PROVIDERS = dict(each.split("=") for each in NAMED_PROVIDERS)
# The built-in provider that takes no money: fit for demos and tests.
SANDBOX_IN_USE = SANDBOX in PAYMENT_PROVIDERS.values()
SANDBOX_ALLOWED = flag("FAIRDROP_SANDBOX_ALLOWED", default=not PRODUCTION)
SANDBOX_SECRET = secret("FAIRDROP_SANDBOX_SECRET", fallback=f"{SECRET_KEY}:sandbox")
# How badly it behaves, for tests: words of shop/sandbox/provider.py.
SANDBOX_MISCHIEF: list[str] = env.list("FAIRDROP_SANDBOX_MISCHIEF", default=[])
# Stripe collects once it is named above, with the key of an account and the secret that signs its events.
STRIPE_IN_USE = "shop.stripe.provider.Stripe" in PAYMENT_PROVIDERS.values()
STRIPE_KEY = env.str("FAIRDROP_STRIPE_KEY", default="")
STRIPE_WEBHOOK_SECRET = env.str("FAIRDROP_STRIPE_WEBHOOK_SECRET", default="")
STRIPE_API = env.str("FAIRDROP_STRIPE_API", default="") or "https://api.stripe.com"
if not PRODUCTION and is_live(STRIPE_KEY):
    raise ImproperlyConfigured("FAIRDROP_STRIPE_KEY is a live key: only production may take real money")

DATABASE_URL = env.str("DATABASE_URL", default="postgresql://fairdrop@127.0.0.1:5432/fairdrop")
REDIS_URL = env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")
CACHE_URL = env.str("CACHE_URL", default="") or REDIS_URL

# Where mails are handed over: smtp+tls://user:password@host:587 (also smtp+ssl, smtp). Empty: no mails are offered;
# outside production they go to the page /mailbox/ instead, and to nobody.
MAIL_URL = env.str("FAIRDROP_MAIL_URL", default="")
if MAIL_URL and not MAIL_URL.startswith(("smtp://", "smtp+tls://", "smtp+ssl://")):
    raise ImproperlyConfigured("FAIRDROP_MAIL_URL must begin with smtp://, smtp+tls:// or smtp+ssl://")
MAILBOX = not MAIL_URL and not PRODUCTION
MAIL_ON = bool(MAIL_URL) or MAILBOX
DEFAULT_FROM_EMAIL = env.str("FAIRDROP_MAIL_FROM", default="shop@localhost")
vars().update(environ.Env.email_url_config(MAIL_URL or "dummymail://"))
EMAIL_TIMEOUT = 10
# So many mails at most are sent in one second: the queue of a drop must not take the cores from its purchases.
MAILS_PER_SECOND = number("FAIRDROP_MAILS_PER_SECOND", default=100, at_least=1, at_most=1000)
# Sent again every two minutes for a day and a half, should the mail server be away.
POST_OFFICE = {
    "BATCH_SIZE": MAILS_PER_SECOND,  # the mailer sends one batch a second
    "THREADS_PER_PROCESS": 4,
    "BATCH_DELIVERY_TIMEOUT": 60,
    "MAX_RETRIES": 1000,
    "RETRY_INTERVAL": timedelta(minutes=2),
    "LOG_LEVEL": 1,
}


def trusted_proxies(text: str) -> int | tuple[str, ...]:
    """Return how many proxies are believed, or the networks they are in. Raises ImproperlyConfigured."""
    if text.isdecimal():
        return int(text)
    try:
        return tuple(str(ip_network(each.strip())) for each in text.split(","))
    except ValueError as error:
        raise ImproperlyConfigured(f"FAIRDROP_TRUSTED_PROXIES must be a number or networks: {error}") from error


# The proxies of ours, each of which adds the address it was called from to X-Forwarded-For: how many a request comes
# through, or the networks they are in. 0: nobody is believed, and the address is that of the connection.
TRUSTED_PROXIES = trusted_proxies(env.str("FAIRDROP_TRUSTED_PROXIES", default="") or "0")

if PRODUCTION:
    unsafe = refusals(
        {
            "DEBUG": DEBUG,
            "SECRET_KEY": SECRET_KEY,
            "SECRET_KEY_FALLBACKS": SECRET_KEY_FALLBACKS,
            "FAIRDROP_TOKEN_KEYS": TOKEN_KEYS,
            "FAIRDROP_LOG_KEYS": LOG_KEYS,
            "FAIRDROP_AUDIT_TOKEN": AUDIT_TOKEN,
            "FAIRDROP_FAULT": FAULT,
            "ALLOWED_HOSTS": ALLOWED_HOSTS,
            "FAIRDROP_TRUSTED_ORIGINS": TRUSTED_ORIGINS,
            "FAIRDROP_BEHIND_TLS": BEHIND_TLS,
            "FAIRDROP_TRUSTED_PROXIES": TRUSTED_PROXIES,
            "FAIRDROP_PUBLIC_URL": PUBLIC_URL,
            **{name: env.str(name, default="") for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL")},
            "FAIRDROP_MAIL_URL": MAIL_URL,
            "FAIRDROP_MAIL_FROM": DEFAULT_FROM_EMAIL,
            "SANDBOX_IN_USE": SANDBOX_IN_USE,
            "FAIRDROP_SANDBOX_ALLOWED": SANDBOX_ALLOWED,
            "FAIRDROP_SANDBOX_SECRET": SANDBOX_SECRET,
            "FAIRDROP_SANDBOX_MISCHIEF": SANDBOX_MISCHIEF,
            "STRIPE_IN_USE": STRIPE_IN_USE,
            "FAIRDROP_STRIPE_KEY": STRIPE_KEY,
            "FAIRDROP_STRIPE_WEBHOOK_SECRET": STRIPE_WEBHOOK_SECRET,
            "FAIRDROP_STRIPE_API": STRIPE_API,
        }
    )
    if unsafe:
        raise ImproperlyConfigured("refusing to start in production: " + "; ".join(unsafe))

INSTALLED_APPS = [
    "shop.accounts.apps.StaffAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_structlog",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "django_otp.plugins.otp_static",
    "post_office",
    "inventory",
    "shop",
    "shop.passkeys",
    "shop.sandbox",
    "shop.stripe",
    "shop.salelog",
    "workers",
]

CONTENT_POLICY: dict[str, list[str]] = {
    "default-src": ["'self'"],
    "object-src": ["'none'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
    # A press that leads to Stripe's page is a form of ours that ends there.
    "form-action": ["'self'", *(["https://checkout.stripe.com"] if STRIPE_IN_USE else [])],
}
if django.VERSION >= (6, 0):
    CSP_MIDDLEWARE = "django.middleware.csp.ContentSecurityPolicyMiddleware"
    SECURE_CSP = CONTENT_POLICY
else:
    CSP_MIDDLEWARE = "csp.middleware.CSPMiddleware"
    CONTENT_SECURITY_POLICY = {"DIRECTIVES": CONTENT_POLICY}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    CSP_MIDDLEWARE,
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "shop.web.request_lines.RequestLines",
    "axes.middleware.AxesMiddleware",
]

# Guesses at passwords: ten from one address, or at one account, and both are locked out for a quarter of an hour. It is
# kept in the database, because staff must be able to log in while Redis is away. Those who are logged in stay so, and
# count their own guesses at the password when it is asked for again.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
AXES_HANDLER = "axes.handlers.cache.AxesCacheHandler"
AXES_CACHE = "logins"
AXES_FAILURE_LIMIT = 10
AXES_LOCKOUT_PARAMETERS = "shop.accounts.limits.counted_by"
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "shop.client_address.limited_client"
AXES_LOCKOUT_CALLABLE = "shop.web.errors.locked_out"
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
# Whether staff must show a code of their authenticator as well as the password; in production they must by default.
STAFF_SECOND_FACTOR = flag("FAIRDROP_STAFF_SECOND_FACTOR", default=PRODUCTION)
OTP_TOTP_ISSUER = "Fairdrop"
# A session of staff ends so long after the login, and so long after it was last used; only staff have sessions.
STAFF_SESSION_SECONDS = 3600 * number("FAIRDROP_STAFF_SESSION_HOURS", default=12, at_least=1)
SESSION_COOKIE_AGE = 60 * number("FAIRDROP_STAFF_IDLE_MINUTES", default=60, at_least=1)
# For so long a password given again lets more refunds and changes of stock pass.
PASSWORD_AGAIN_SECONDS = 300

ROOT_URLCONF = "shop.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        # The shop's own come before the admin's of the same name.
        "DIRS": [CHECKOUT / "shop" / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Every statement, lock and idle transaction has an end: a stopped process cannot hold a SKU's row for ever, nor one
# whose machine vanished in a pause (keepalives) or who takes no more of a result. tcp_*: not at Unix sockets.
DATABASE_TIMEOUTS = (
    "-c statement_timeout=15000 -c lock_timeout=4000 -c idle_in_transaction_session_timeout=5000 "
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000 "
    "-c default_transaction_isolation=read\\ committed"
)
# A database that vanished without a word is noticed by us, not by its silence.
DATABASE_SOCKET = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
DATABASE = environ.Env.db_url_config(DATABASE_URL)
# What the URL asks beyond these, as another name of the program, would clash with what every connection says itself.
ASKED = {n: v for n, v in DATABASE.get("OPTIONS", {}).items() if n.startswith("ssl") or n == "target_session_attrs"}
DATABASES = {
    "default": {
        **DATABASE,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**ASKED, "connect_timeout": 3, "options": DATABASE_TIMEOUTS, **DATABASE_SOCKET},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# How long a call to Redis may take, for the line and for the cache. A millisecond would be WAIT's 0, which is for ever.
REDIS_TIMEOUT_SECONDS = number("FAIRDROP_REDIS_TIMEOUT_SECONDS", default=0.8, at_least=0.01, at_most=3600)
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "fd-cache",
        "OPTIONS": {
            "SOCKET_CONNECT_TIMEOUT": REDIS_TIMEOUT_SECONDS,
            "SOCKET_TIMEOUT": REDIS_TIMEOUT_SECONDS,
            "IGNORE_EXCEPTIONS": True,
        },
    },
    "logins": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "shop_failed_logins",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    },
}

# The line: how many replicas must have a place before its buyer is told of it; 0: none.
REDIS_REPLICAS = number("FAIRDROP_REDIS_REPLICAS", default=0, at_least=0)
if REDIS_REPLICAS and REDIS_URL.startswith(("redis+cluster", "rediss+cluster")):
    raise ImproperlyConfigured("FAIRDROP_REDIS_REPLICAS waits on one server or Sentinel only, not on a Cluster")
# After Redis was lost nobody in a line is decided for so long; a ticket's page that failed asks again within 37.5 s.
RESTORE_GRACE_SECONDS = number("FAIRDROP_RESTORE_GRACE_SECONDS", default=40.0, at_least=0, at_most=3600)
# Less than a second's work of a process: a 503 costs its buyer a second, so waiting that long is better.
GATE_MAX_WAITING = number("FAIRDROP_GATE_MAX_WAITING", default=12288, at_least=1)
# How many live streams one process holds; the server's own limit (MAX_CONNECTIONS) must be well above it.
GATE_MAX_STREAMS = number("FAIRDROP_GATE_MAX_STREAMS", default=4000, at_least=1)
# Of both, what one client address may hold in one process, 0 is no limit; behind our own proxies connections are left
# to them.
GATE_MAX_CONNECTIONS_PER_ADDRESS = number("FAIRDROP_GATE_MAX_CONNECTIONS_PER_ADDRESS", default=5000, at_least=0)
GATE_MAX_STREAMS_PER_ADDRESS = number("FAIRDROP_GATE_MAX_STREAMS_PER_ADDRESS", default=2000, at_least=0)


def rate(name: str, *, default: str) -> tuple[float, float]:
    """Return how often something may be done: at once, and a second from then on. Raises ImproperlyConfigured."""
    at_once, _, per_second = (env.str(name, default="") or default).partition(":")
    try:
        found = float(at_once), float(per_second or 0)
    except ValueError:
        found = (-1.0, -1.0)
    if not (found[0] == 0 or (1 <= found[0] <= 1e6 and 0 < found[1] <= 1e6)):
        raise ImproperlyConfigured(f"{name} must be like {default}: so many at once, so many a second; 0: no limit")
    return found


# What one client address may do in one process; its network may do four times as much.
RATE_OF_BUYERS = rate("FAIRDROP_RATE_OF_BUYERS", default="1000:50")
RATE_OF_ASKS = rate("FAIRDROP_RATE_OF_ASKS", default="1000:100")
RATE_OF_STREAMS = rate("FAIRDROP_RATE_OF_STREAMS", default="4000:400")
# A buyer token ends so many days after it was signed; pages sign it again after half of them.
BUYER_DAYS = number("FAIRDROP_BUYER_DAYS", default=180, at_least=1, at_most=3650)
# Passes: how many tries a challenge takes on average (twice as many at most), how long a pass lives after its
# challenge, and how long a page without script waits for one.
PASS_WORK = number("FAIRDROP_PASS_WORK", default=600, at_least=1, at_most=1_000_000)
PASS_SECONDS = number("FAIRDROP_PASS_SECONDS", default=900, at_least=60, at_most=86_400)
PASS_WAIT_SECONDS = number("FAIRDROP_PASS_WAIT_SECONDS", default=60, at_least=1, at_most=3600)
# So many requests of one buyer may end unsold in one sale; then it takes no more of theirs.
MAX_ENDED_REQUESTS = number("FAIRDROP_MAX_ENDED_REQUESTS", default=10, at_least=1, at_most=1000)
# After so many declined cards no more are tried: of one hold, and of one buyer within a day.
MAX_DECLINED_PER_HOLD = number("FAIRDROP_MAX_DECLINED_PER_HOLD", default=5, at_least=1, at_most=1000)
MAX_DECLINED_PER_BUYER = number("FAIRDROP_MAX_DECLINED_PER_BUYER", default=15, at_least=1, at_most=1000)
GATE_BATCH = number("FAIRDROP_GATE_BATCH", default=512, at_least=1, at_most=1000)
LOCK_TTL_MS = number("FAIRDROP_LOCK_TTL_MS", default=5000, at_least=100)
SETTLE_BATCH = number("FAIRDROP_SETTLE_BATCH", default=500, at_least=1, at_most=1000)
# How long after its end a settled sale is retired: then Redis forgets it, and only the database answers for it.
RETIRE_AFTER_SECONDS = number("FAIRDROP_RETIRE_AFTER_SECONDS", default=86_400, at_least=0)
# So long the addresses of buyers are kept: of a delivery since it was last changed, of mails since it was given.
KEEP_ADDRESSES_DAYS = number("FAIRDROP_KEEP_ADDRESSES_DAYS", default=90, at_least=1)
# So long mails are kept after they were queued; so long orders name their buyer after their sale has ended; so long the
# acts of staff are kept, of which the database lets no younger ones go.
KEEP_MAILS_DAYS = number("FAIRDROP_KEEP_MAILS_DAYS", default=7, at_least=1)
KEEP_ORDERS_DAYS = number("FAIRDROP_KEEP_ORDERS_DAYS", default=1095, at_least=30)
KEEP_ACTS_DAYS = number("FAIRDROP_KEEP_ACTS_DAYS", default=730, at_least=30)

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else STATE_DIR / "static"
if not PRODUCTION:
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)
WHITENOISE_USE_FINDERS = not PRODUCTION
# Where uploaded pictures are kept: all web processes need the same folder, and nobody else writes there.
MEDIA_ROOT = env.str("FAIRDROP_MEDIA_ROOT", default="") or str(STATE_DIR / "media")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "shop.static_files.StaticFilesWithFingerprints"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Under TLS a browser takes such a cookie from this host only: no other host of the domain can set it.
COOKIE_PREFIX = "__Host-" if BEHIND_TLS else ""
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}csrftoken"
SESSION_COOKIE_SECURE = BEHIND_TLS
CSRF_FAILURE_VIEW = "shop.web.errors.form_refused"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SECURE = BEHIND_TLS
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024
# The largest form is that of a cluster of orders: a field for each. Its body is bounded by the size above.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000
DATA_UPLOAD_MAX_NUMBER_FILES = 2
# The largest call that the gate takes, from staff only and for a picture; it is in memory as a whole, and so is its
# file: nothing goes to a disk as it came.
MAX_UPLOAD_BYTES = FILE_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024
if PRODUCTION and not BEHIND_TLS:
    # Only on this machine, or production has not started: without TLS none of these can be on.
    SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W008", "security.W012", "security.W016"]
if BEHIND_TLS:
    SECURE_SSL_REDIRECT = flag("FAIRDROP_SSL_REDIRECT", default=True)
    SECURE_HSTS_SECONDS = number("FAIRDROP_HSTS_SECONDS", default=31_536_000, at_least=0)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_REDIRECT_EXEMPT = [r"^healthz$"]

# The gate gives each request an id and puts it into the header, whatever came in. One line a request: its end.
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True
DJANGO_STRUCTLOG_STATUS_START_LOG_LEVEL = logging.DEBUG
# Where each process shows what it counts, "host:port"; empty: a web process at its own port only, a worker nowhere.
METRICS_ADDRESS = env.str("FAIRDROP_METRICS_ADDRESS", default="")
if METRICS_ADDRESS and not METRICS_ADDRESS.rpartition(":")[2].isdecimal():
    raise ImproperlyConfigured("FAIRDROP_METRICS_ADDRESS must be host:port")
# The collector of traces, "http://host:4318"; empty: no traces. OpenTelemetry's library reads it again by itself.
TRACES_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default="")
# Which part of the requests is traced. Each of their samplers chooses a request by its id, so all come to one number.
TRACES_RATIO = number("OTEL_TRACES_SAMPLER_ARG", default=1.0, at_least=0, at_most=1)
TRACES_SAMPLER = (env.str("OTEL_TRACES_SAMPLER", default="") or "traceidratio").removeprefix("parentbased_")
if TRACES_SAMPLER in ("always_on", "always_off"):
    TRACES_RATIO = float(TRACES_SAMPLER == "always_on")
elif TRACES_SAMPLER != "traceidratio":
    raise ImproperlyConfigured("OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio")
SECRETS = [
    *(SECRET_KEY, *SECRET_KEY_FALLBACKS, *TOKEN_KEYS, *(key.partition("=")[2] for key in LOG_KEYS)),
    *(AUDIT_TOKEN, SANDBOX_SECRET, STRIPE_KEY, STRIPE_WEBHOOK_SECRET),
]
LOG_LEVEL = env.str("LOG_LEVEL", default="").strip().upper() or "WARNING"
if LOG_LEVEL not in logging.getLevelNamesMapping():
    raise ImproperlyConfigured(f"LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {LOG_LEVEL!r}")
LOGGING = logging_config(level=LOG_LEVEL, as_json=PRODUCTION, secrets=SECRETS)
