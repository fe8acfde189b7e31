"""The admin client, what users call; and the values that it takes and returns."""
from pyclient.admin.offset_files import read_offsets, write_offsets
from pyclient.admin.throttle_files import read_throttle, write_throttle
from pyclient.descriptions.acls import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResourceType
from pyclient.descriptions.cluster import FeatureChange, FeatureRange, Quorum, QuorumReplica, VoterEndpoint
from pyclient.descriptions.configs import (
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ConfigSynonym, ConfigType, ResourceType,
)
from pyclient.descriptions.groups import GroupDescription, GroupListing, GroupMember, GroupOffset, OffsetReset
from pyclient.descriptions.offsets import ListedOffset, OffsetSpec
from pyclient.descriptions.replicas import ElectionType, LogDir, Reassignment, ReassignmentPlan, ReplicaSize, ReplicationThrottle
from pyclient.descriptions.tokens import DelegationToken
from pyclient.descriptions.transactions import FencedProducer, ProducerState, TransactionDescription, TransactionListing
from pyclient.descriptions.users import QuotaEntity, QuotaName, ScramCredential, ScramDeletion, ScramMechanism, ScramPassword

__all__ = [
    "Acl", "AclFilter", "AclOperation", "AclPattern", "AclPermission", "AclResourceType",
    "ConfigChange", "ConfigEntry", "ConfigOperation", "ConfigResource", "ConfigSource", "ConfigSynonym", "ConfigType",
    "DelegationToken", "ElectionType", "FeatureChange", "FeatureRange", "FencedProducer", "GroupDescription", "GroupListing", "GroupMember", "GroupOffset", "ListedOffset", "LogDir", "OffsetReset", "OffsetSpec",
    "ProducerState", "Quorum", "QuorumReplica", "QuotaEntity", "QuotaName", "Reassignment", "ReassignmentPlan", "ReplicaSize", "ReplicationThrottle", "ResourceType", "ScramCredential", "ScramDeletion", "ScramMechanism", "ScramPassword",
    "TransactionDescription", "TransactionListing", "VoterEndpoint", "read_offsets", "read_throttle", "write_offsets", "write_throttle",
]
