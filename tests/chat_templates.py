"""The ways in which real chat templates differ, as templates of our own with the same form and the same moods.

What each family writes is taken from its public description: the markers, what it does with a system turn, whether
it insists on alternation, what it inserts by itself, which tokens end a turn. The wording here is ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One family: its template, its control tokens (those that end a reply first), and whether a text begins with one.

    ``grows``: a conversation's tokens are the beginning of those with one more exchange.
    """

    template: str
    ends: tuple[str, ...]
    controls: tuple[str, ...]
    bos: str | None = None
    grows: bool = True


_CHATML_TURNS = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

_ALTERNATION = (
    "{%- for message in rest -%}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('roles must alternate, the user first') }}{%- endif -%}{%- endfor -%}"
)

_SYSTEM_FIRST = (
    "{%- for message in messages -%}{%- if message.role == 'system' and not loop.first -%}"
    "{{ raise_exception('the system message must come first') }}{%- endif -%}{%- endfor -%}"
)

FAMILIES: dict[str, Family] = {
    # Inserts a system turn of its own where none is given.
    "smollm2": Family(
        "{%- if messages[0].role != 'system' -%}"
        "{{ '<|im_start|>system\\nI am the default.<|im_end|>\\n' }}{%- endif -%}" + _CHATML_TURNS,
        ends=("<|im_end|>", "<|endoftext|>"),
        controls=("<|im_start|>",),
    ),
    "qwen2.5": Family(
        "{%- if messages[0]['role'] == 'system' -%}"
        "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
        "{%- else -%}{{- '<|im_start|>system\\nI am the default.<|im_end|>\\n' }}{%- endif -%}"
        "{%- for message in messages[1:] -%}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' }}{%- endif -%}",
        ends=("<|im_end|>", "<|endoftext|>"),
        controls=("<|im_start|>",),
    ),
    # Cuts what was thought out of earlier replies, and opens a reply with a thought that is over where none is wanted.
    "qwen3": Family(
        "{%- set ns = namespace(last=messages|length - 1) -%}"
        "{%- for message in messages[::-1] -%}{%- if message.role == 'user' and ns.last == messages|length - 1 -%}"
        "{%- set ns.last = messages|length - 1 - loop.index0 -%}{%- endif -%}{%- endfor -%}"
        "{%- for message in messages -%}{%- set content = message.content if message.content is string else '' -%}"
        "{%- if message.role == 'assistant' and '</think>' in content -%}"
        "{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}"
        "{{- '<|im_start|>' + message.role + '\\n' }}"
        "{%- if message.role == 'assistant' and loop.index0 > ns.last -%}"
        "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
        "{{- content + '<|im_end|>\\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false -%}"
        "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}{%- endif -%}",
        ends=("<|im_end|>", "<|endoftext|>"),
        controls=("<|im_start|>",),
        grows=False,
    ),
    # Two tokens end a reply; contents are trimmed; a text begins with a token of its own.
    "llama3": Family(
        "{{- bos_token }}{%- for message in messages -%}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
        "{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}",
        ends=("<|eot_id|>", "<|end_of_text|>"),
        controls=("<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"),
        bos="<|begin_of_text|>",
    ),
    # Always writes a system turn, with the date in it.
    "llama3.2": Family(
        "{{- bos_token }}{%- if strftime_now is defined -%}{%- set day = strftime_now('%d %b %Y') -%}{%- endif -%}"
        "{%- if messages[0]['role'] == 'system' -%}{%- set system = messages[0]['content'] | trim -%}"
        "{%- set messages = messages[1:] -%}{%- else -%}{%- set system = '' -%}{%- endif -%}"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nDate: ' + day + '\\n\\n' + system + '<|eot_id|>' }}"
        "{%- for message in messages -%}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
        "{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}",
        ends=("<|eot_id|>", "<|end_of_text|>"),
        controls=("<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"),
        bos="<|begin_of_text|>",
    ),
    # Refuses a system turn, insists on alternation, calls the assistant by another name.
    "gemma2": Family(
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}"
        "{{ raise_exception('there is no system role') }}{%- endif -%}{%- set rest = messages -%}"
        + _ALTERNATION
        + "{%- for message in messages -%}"
        "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}"
        "{{ message['content'] | trim + '<end_of_turn>\\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}",
        ends=("<end_of_turn>", "<eos>"),
        controls=("<start_of_turn>", "<bos>"),
        bos="<bos>",
    ),
    # Folds the system turn into the first of the user's by itself.
    "gemma3": Family(
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}"
        "{%- set opening = messages[0]['content'] + '\\n\\n' -%}{%- set rest = messages[1:] -%}"
        "{%- else -%}{%- set opening = '' -%}{%- set rest = messages -%}{%- endif -%}"
        + _ALTERNATION
        + "{%- for message in rest -%}"
        "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}"
        "{{ (opening if loop.first else '') + message['content'] | trim + '<end_of_turn>\\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}",
        ends=("<end_of_turn>", "<eos>"),
        controls=("<start_of_turn>", "<bos>"),
        bos="<bos>",
    ),
    # No system turn of its own: its text goes before the last of the user's, wherever that is by now.
    "mistral": Family(
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set system = messages[0]['content'] -%}"
        "{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}"
        + _ALTERNATION
        + "{%- for message in rest -%}{%- if message['role'] == 'user' -%}"
        "{%- if loop.last and system is defined -%}{{ '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}"
        "{%- else -%}{{ '[INST] ' + message['content'] + '[/INST]' }}{%- endif -%}"
        "{%- else -%}{{ message['content'] + eos_token }}{%- endif -%}{%- endfor -%}",
        ends=("</s>",),
        controls=("[INST]", "[/INST]", "<s>"),
        bos="<s>",
    ),
    # The oldest form: no word of a system turn at all, and it insists on alternation.
    "mistral-v0.1": Family(
        "{{ bos_token }}{%- set rest = messages -%}" + _ALTERNATION + "{%- for message in messages -%}"
        "{%- if message['role'] == 'user' -%}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{%- else -%}{{ message['content'] + eos_token + ' ' }}{%- endif -%}{%- endfor -%}",
        ends=("</s>",),
        controls=("<s>",),
        bos="<s>",
    ),
    "phi3": Family(
        "{%- for message in messages -%}{%- if message['role'] == 'system' and message['content'] -%}"
        "{{ '<|system|>\\n' + message['content'] + '<|end|>\\n' }}"
        "{%- elif message['role'] == 'user' -%}{{ '<|user|>\\n' + message['content'] + '<|end|>\\n' }}"
        "{%- elif message['role'] == 'assistant' -%}{{ '<|assistant|>\\n' + message['content'] + '<|end|>\\n' }}"
        "{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- else -%}{{ eos_token }}{%- endif -%}",
        ends=("<|end|>", "<|endoftext|>"),
        controls=("<|system|>", "<|user|>", "<|assistant|>"),
    ),
    # Its separator is a control token, and the system turn must come first.
    "phi4": Family(
        _SYSTEM_FIRST + "{%- for message in messages -%}"
        "{{ '<|im_start|>' + message.role + '<|im_sep|>' + message.content + '<|im_end|>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif -%}",
        ends=("<|im_end|>", "<|endoftext|>"),
        controls=("<|im_start|>", "<|im_sep|>"),
    ),
    # Leaves a system turn out without a word.
    "silent": Family(
        "{%- for message in messages if message.role != 'system' -%}"
        "{{ '<|' + message.role + '|>' + message.content + '</s>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}",
        ends=("</s>",),
        controls=("<|user|>", "<|assistant|>"),
    ),
}
