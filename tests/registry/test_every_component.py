"""What holds for every registered component: docstrings, meanings and names of options."""


def test_every_option_has_a_meaning():
    from xformer_kit.config import GROUPS, INNER

    without_meaning = [
        f"{group} {name}.{option}"
        for group, registry in (GROUPS | INNER).items()
        for name in registry
        for option, found in registry.options(name).items()
        if not found.meaning
    ]
    assert without_meaning == []


def test_every_component_has_a_docstring():
    from xformer_kit.config import GROUPS

    for registry in GROUPS.values():
        for name, component in registry.items():
            assert (component.__doc__ or "").strip(), name


def test_no_option_has_the_name_of_a_setting_of_its_group():
    """data.seed is the order of examples: a corpus with an option of that name would hide it."""
    from xformer_kit.config import GROUPS
    from xformer_kit.config.settings import SETTINGS

    for group in ("data", "tokenizer"):
        settings = set(SETTINGS.options(group)) if group in SETTINGS else set()
        for name in GROUPS[group]:
            assert not settings & set(GROUPS[group].options(name)), name
