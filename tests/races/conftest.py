"""Lets the races wait for Redis. Never lengthens what a race is about: only how long an answer of Redis may take."""

from tests.support.patience import patient_redis as patient_redis
