"""The one exception that stands for a user's mistake."""


class CarsoError(ValueError):
    """Bad input: the message is one line that says what was wrong and what would be right.

    The command line prints it without a traceback and exits with `code`.
    """

    code = 2
    alone = False
    """Whether it befell one of many processes only, which then has to say so itself."""


class CarsoTypeError(CarsoError, TypeError):
    """The same where Python itself would raise a TypeError: a value of the wrong kind, or an
    argument that there is not."""


def reason(error: BaseException) -> str:
    """The first line of what an exception says, or its kind where it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)
