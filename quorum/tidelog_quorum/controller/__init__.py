"""The controller: decides requests by the metadata image, without I/O, clock or randomness."""

from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerProgress, BrokerRefused
from tidelog_quorum.controller.state_machine import Controller, PeriodicTask

__all__ = ["BrokerProgress", "BrokerRefused", "Controller", "ControllerConfig", "PeriodicTask", "Result"]
