"""The admin client, what users call; and the values that it takes and returns."""
from pyclient.descriptions.configs import (
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ConfigSynonym, ConfigType, ResourceType,
)
from pyclient.descriptions.offsets import ListedOffset, OffsetSpec

__all__ = [
    "ConfigChange", "ConfigEntry", "ConfigOperation", "ConfigResource", "ConfigSource", "ConfigSynonym", "ConfigType", "ListedOffset", "OffsetSpec",
    "ResourceType",
]
