"""General ability: sixty questions with four answers each, scored by log-probability on the served file.

A lesson in style must not cost the model what it knows. Free text would measure the style too, so the model
never writes here: each answer is scored as the reply to its question, by mean log-probability per token, and
counts where the right one scores best. Deterministic; a quarter of a minute on one core.

    python -m tests.benchmarks.ability [--adapter FILE.gguf]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from app.model import catalogue, convert
from app.model.llama import (
    ContextSettings,
    LlamaContext,
    LlamaModel,
    Sampler,
    evaluate_prompt,
    shared_prefix,
)
from app.model.llama.context import Row
from app.model.renderer import Renderer, Turn
from store.home import Home
from store.types import Role

# question; right answer; three wrong ones
ITEMS = """
What is the capital of France?|Paris|Madrid|Berlin|Rome
What is the capital of Japan?|Tokyo|Beijing|Seoul|Bangkok
What is the capital of Italy?|Rome|Athens|Lisbon|Vienna
What is the capital of Egypt?|Cairo|Tunis|Nairobi|Lagos
What is the capital of Canada?|Ottawa|Boston|Chicago|Denver
What is the largest ocean on Earth?|The Pacific Ocean|The Red Sea|The Black Sea|Lake Superior
What is the largest planet in the solar system?|Jupiter|Mars|Mercury|Venus
Which planet is closest to the sun?|Mercury|Saturn|Neptune|Jupiter
What do bees make?|Honey|Milk|Paper|Silk
What do cows drink?|Water|Petrol|Coffee|Ink
What is the opposite of hot?|Cold|Tall|Fast|Loud
What is the opposite of up?|Down|Green|Sweet|Late
What is the opposite of early?|Late|Soft|Round|Blue
What colour is a ripe banana?|Yellow|Blue|Purple|Grey
What colour is grass?|Green|Red|White|Orange
What colour is the sky on a clear day?|Blue|Green|Brown|Pink
How many legs does a spider have?|Eight|Three|Two|Eleven
How many days are in a week?|Seven|Four|Nine|Twelve
How many months are in a year?|Twelve|Five|Eight|Twenty
How many minutes are in an hour?|Sixty|Ten|Forty|Ninety
What is 2 plus 3?|5|9|1|12
What is 10 minus 4?|6|2|9|14
What is 3 times 3?|9|6|12|5
What is 8 divided by 2?|4|3|6|10
What is half of 20?|10|4|15|40
Who wrote Romeo and Juliet?|William Shakespeare|Albert Einstein|Napoleon|Mozart
Who painted the Mona Lisa?|Leonardo da Vinci|Isaac Newton|Charles Darwin|Ludwig van Beethoven
Who was the first president of the United States?|George Washington|Queen Victoria|Julius Caesar|Marco Polo
Who developed the theory of relativity?|Albert Einstein|William Shakespeare|Elvis Presley|Pablo Picasso
What gas do plants take in from the air?|Carbon dioxide|Helium|Neon|Steam
What gas do people need to breathe?|Oxygen|Helium|Chlorine|Methane
At what temperature does water freeze?|0 degrees Celsius|50 degrees Celsius|90 degrees Celsius|200 degrees Celsius
What is water made of?|Hydrogen and oxygen|Iron and gold|Salt and sand|Carbon and silver
What is frozen water called?|Ice|Steam|Sand|Smoke
Which animal is known as man's best friend?|The dog|The snake|The shark|The spider
Which animal says meow?|The cat|The cow|The duck|The horse
What is a baby dog called?|A puppy|A calf|A chick|A foal
What is a baby cat called?|A kitten|A lamb|A tadpole|A cub
Where do fish live?|In water|In the clouds|In volcanoes|In trees
Where does the sun rise?|In the east|In the west|In the north|In the south
What season comes after winter?|Spring|Monday|Noon|August
What day comes after Monday?|Tuesday|Friday|Sunday|Saturday
What month comes after June?|July|March|December|October
What do you use to cut paper?|Scissors|A spoon|A pillow|A candle
What do you use to tell the time?|A clock|A fork|A shoe|A ladder
What do you wear on your feet?|Shoes|Gloves|A hat|A scarf
What do you use an umbrella for?|To stay dry in the rain|To cook dinner|To write a letter|To drive a car
Which meal do people eat in the morning?|Breakfast|Supper|Midnight snack|Dinner
What is bread made from?|Flour|Glass|Wool|Plastic
What is cheese made from?|Milk|Wood|Sand|Cotton
What is the main language spoken in Brazil?|Portuguese|Russian|Hindi|Dutch
What is the main language spoken in Germany?|German|Korean|Arabic|Swahili
What currency is used in Japan?|The yen|The rouble|The peso|The rupee
What currency is used in the United Kingdom?|The pound|The yen|The lira|The baht
On which continent is Kenya?|Africa|Europe|Asia|Antarctica
On which continent is China?|Asia|Africa|Europe|South America
What organ pumps blood through the body?|The heart|The stomach|The skin|The ear
What part of the body do you see with?|The eyes|The knees|The elbows|The feet
What force pulls things towards the ground?|Gravity|Music|Colour|Hunger
What is the hottest thing in the solar system?|The sun|The moon|A comet|Pluto
"""

CONTEXT = 512
SEQUENCES = 5
"""One for the question and one for each of its answers."""


def items() -> list[tuple[str, list[str]]]:
    """Questions with their answers, the right one first."""
    rows = [line.split("|") for line in ITEMS.strip().splitlines()]
    return [(row[0], row[1:]) for row in rows]


def accuracy(context: LlamaContext, renderer: Renderer) -> float:
    """Share of the questions whose right answer is the likeliest of the four. ``context``: of `SEQUENCES` sequences."""
    right = 0
    held: list[int] = []
    for question, answers in items():
        prompt = renderer.prompt([Turn(Role.USER, question)])
        shared = min(shared_prefix([held, prompt]), len(prompt) - 1)
        context.truncate(0, shared)
        evaluate_prompt(context, prompt, shared, 0, lambda: None)
        held = prompt
        scores = _scores(context, len(prompt), [renderer.completion(answer)[:-1] for answer in answers])
        right += int(np.argmax(scores) == 0)
    return right / len(items())


def _scores(context: LlamaContext, start: int, answers: list[list[int]]) -> list[float]:
    """Mean natural-log probability of each answer's tokens behind the ``start`` tokens of sequence 0.

    An answer's end is left out, since style is what moves that. All answers are one evaluation, each in a sequence.
    """
    first = np.array(context.logits())
    rows = []
    for seq, answer in enumerate(answers, start=1):
        context.truncate(seq, 0)
        context.copy_prefix(0, seq, start)
        rows += [Row(token, start + place, seq) for place, token in enumerate(answer)]
    context.evaluate_together(rows)
    scores, row = [], 0
    for answer in answers:
        logits = [first, *(np.array(context.row_logits(row + place)) for place in range(len(answer) - 1))]
        row += len(answer)
        known = [float(Sampler.logprob(each, token)) for each, token in zip(logits, answer, strict=True)]
        scores.append(float(np.mean(known)))
    return scores


def measure(home: Home, adapter: Path | None) -> float:
    """Accuracy of a home's default model, with an adapter or without."""
    model = LlamaModel.load(convert.served_form(catalogue.resolve(home, None)))
    try:
        renderer = Renderer(model.vocab, model.chat_template)
        context = model.context(ContextSettings(CONTEXT, SEQUENCES, n_batch=CONTEXT))
        if adapter is not None:
            context.set_adapter(model.load_adapter(adapter))
        return accuracy(context, renderer)
    finally:
        model.close()


def main() -> None:
    """Print the accuracy as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adapter", type=Path)
    given = parser.parse_args()
    print(json.dumps({"questions": len(items()), "accuracy": measure(Home.default(), given.adapter)}))


if __name__ == "__main__":
    main()
