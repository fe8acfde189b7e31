"""AWS_MSK_IAM: OAUTHBEARER with tokens that AWS's own package signs for Amazon MSK."""
from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any, Final

from pyclient.errors import ConfigurationError, TokenUnavailableError
from pyclient.plugins import OAuthToken
from pyclient.redaction import Secret, in_one_line
from pyclient.sasl.oauthbearer import OAuthBearer
from pyclient.sasl.tokens import TokenSource

REGION: Final = "sasl_aws_msk_iam_region"
PROFILE: Final = "sasl_aws_msk_iam_profile"
ROLE: Final = "sasl_aws_msk_iam_role_arn"
PACKAGE: Final = "aws_msk_iam_sasl_signer"
OF_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?", re.IGNORECASE)
"""The names of MSK's brokers contain their region."""
OF_ENVIRONMENT: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
SHOWN: Final = 300


class MskIam(OAuthBearer):
    """Brokers see OAUTHBEARER; each token is a signed URL that is valid for 15 minutes."""

    options = (REGION, PROFILE, ROLE)

    def _make_source(self, config: Any) -> TokenSource:
        """Sign with the options' identity, or else what AWS's default chain finds.

        Raises:
            ConfigurationError: the region is not known, two identities are given, or the signer is not installed.
        """
        if None not in (config.sasl_aws_msk_iam_profile, config.sasl_aws_msk_iam_role_arn):
            raise ConfigurationError(f"{PROFILE} and {ROLE} are two identities: keep one", option=PROFILE)
        if config.sasl_aws_msk_iam_role_session_name is not None and config.sasl_aws_msk_iam_role_arn is None:
            raise ConfigurationError(f"sasl_aws_msk_iam_role_session_name names the session of a role: set {ROLE} too", option=ROLE)
        if importlib.util.find_spec(PACKAGE) is None:
            raise ConfigurationError(
                "sasl_mechanism=AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python; install it with pip install 'pyclient-kafka[aws]'",
                option="sasl_mechanism")
        return functools.partial(_signed, _region(config), config)


def _region(config: Any) -> str:
    """The region of the options, of the brokers' names, or of the environment."""
    of_brokers = [found[1].lower() for each in config.bootstrap_servers if (found := OF_BROKER.search(each.host))]
    of_environment = [os.environ[name] for name in OF_ENVIRONMENT if os.environ.get(name)]
    for region in (config.sasl_aws_msk_iam_region, *of_brokers, *of_environment):
        if region is not None:
            return str(region)
    raise ConfigurationError(
        f"{REGION} is not set, and neither the names of bootstrap_servers nor AWS_REGION name the region of the cluster", option=REGION)


def _signed(region: str, config: Any) -> OAuthToken:
    """A token, signed here. Only to assume a role, or to find credentials of a machine in AWS, AWS is asked."""
    try:
        token, expires_ms = _signer(region, config)()
    except Exception as error:
        raise TokenUnavailableError(f"AWS's signer made no token for MSK in {region}: {_why(error)}") from error
    return OAuthToken(Secret(token), expires_ms / 1000)


def _signer(region: str, config: Any) -> Callable[[], tuple[str, int]]:
    aws: Any = importlib.import_module(f"{PACKAGE}.MSKAuthTokenProvider")
    role, profile = config.sasl_aws_msk_iam_role_arn, config.sasl_aws_msk_iam_profile
    if role is not None:
        session = config.sasl_aws_msk_iam_role_session_name
        return functools.partial(aws.generate_auth_token_from_role_arn, region, role, *([] if session is None else [session]))
    if profile is not None:
        return functools.partial(aws.generate_auth_token_from_profile, region, profile)
    return functools.partial(aws.generate_auth_token, region)


def _why(error: Exception) -> str:
    """The signer takes missing credentials for an object."""
    if isinstance(error, AttributeError) and "NoneType" in str(error):
        return "no AWS credentials were found in the environment, in AWS's files or from the machine's role"
    return f"{type(error).__name__}: {in_one_line(str(error), SHOWN)}"
