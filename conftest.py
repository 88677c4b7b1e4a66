import pytest

from harness import Service, entity


@pytest.fixture(scope="session")
def shared():
    """One service for the tests that need no settings of their own."""
    with Service() as s:
        yield s


@pytest.fixture
def client(shared):
    return shared.client()


@pytest.fixture
def eid():
    return entity()
