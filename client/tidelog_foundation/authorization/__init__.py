"""Decisions whether principals may perform operations on resources, and the rules of requests."""

from tidelog_foundation.authorization.access import READ_TOPIC, WRITE_TOPIC, WRITE_TRANSACTION, Access, Right
from tidelog_foundation.authorization.audit_log import AuditLog
from tidelog_foundation.authorization.authorizer import AclStore, Action, Authorizer, RequestOrigin
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.authorization.standard_authorizer import StandardAuthorizer
