"""Make prompts of six kinds from templates; training and test share no template and no topic.

    question, list, story, code      {t} and {u} are topics, {c} is a task for a program
    summary, rewrite                 {p} is a passage, which the model wrote earlier as the
                                     answer to a question or as a story
"""

import numpy as np

TOPICS = """
    photosynthesis, the moon, black holes, volcanoes, the Roman Empire, electric cars,
    gardening, baking bread, learning the guitar, time management, public speaking, the
    water cycle, gravity, the French Revolution, machine learning, neural networks, healthy
    eating, running a marathon, meditation, saving money, credit cards, the stock market,
    renewable energy, solar panels, wind turbines, recycling, climate change, bees,
    elephants, dolphins, dogs, cats, penguins, sharks, butterflies, dinosaurs, the human
    heart, the brain, vaccines, antibiotics, sleep, stress, yoga, friendship, teamwork,
    leadership, job interviews, writing a resume, remote work, starting a business, social
    media, customer service, web design, databases, operating systems, computer networks,
    encryption, passwords, open source software, Python programming, recursion, sorting
    algorithms, binary search, data structures, object-oriented programming, unit tests,
    version control, cloud computing, robots, 3D printing, virtual reality, video games,
    chess, football, swimming, tennis, cycling, hiking, camping, fishing, photography,
    painting, drawing, music theory, jazz, classical music, poetry, Shakespeare, science
    fiction, mystery novels, Greek mythology, ancient Egypt, the Middle Ages, the
    Renaissance, the Industrial Revolution, the Second World War, the Cold War, democracy,
    human rights, inflation, supply and demand, taxes, insurance, real estate, architecture,
    bridges, airplanes, trains, ships, space travel, Mars, the solar system, stars, atoms,
    chemical reactions, the periodic table, electricity, magnets, light, sound, probability,
    statistics, algebra, geometry, calculus, prime numbers, fractions, grammar, learning
    Spanish, learning English, reading, essay writing, note taking, studying for exams,
    online courses, kindergarten, parenting, babies, birthday parties, weddings, holidays,
    travel to Japan, travel to Italy, Paris, New York, London, the Amazon rainforest, the
    Sahara desert, oceans, coral reefs, rivers, mountains, weather forecasts, hurricanes,
    earthquakes, coffee, tea, chocolate, pizza, pasta, salads, soup, vegetables, fruit,
    cheese, fast food, breakfast, a talking dog, a brave knight, an old clock, a lost key,
    two sisters, a magic forest, a dragon, a detective, a farmer and his horse, a small
    village, the Great Wall of China, the Olympic Games, the internet, the telephone, maps,
    money, ants, horses, wolves, whales, spiders, trees, flowers, deserts, islands, caves,
    bicycles, libraries, museums, theatre, dance, the piano, songwriting, film making,
    fashion, furniture, houses"""
TASKS = """
    reverses a string; computes the factorial of a number; checks whether a number is prime;
    sorts a list of numbers; counts the words in a text; finds the largest number in a list;
    merges two dictionaries; reads a CSV file; computes the Fibonacci sequence; removes
    duplicates from a list; checks whether a string is a palindrome; converts Celsius to
    Fahrenheit; finds the greatest common divisor; counts the vowels in a string; flattens a
    nested list; transposes a matrix; implements binary search; implements bubble sort;
    implements a stack; implements a queue; computes the mean and the median; validates an
    email address; generates a random password; writes a dictionary to a JSON file;
    downloads a web page; multiplies two matrices; finds all anagrams of a word; computes
    the area of a circle; rolls two dice; draws a triangle of stars; finds the longest word
    in a sentence; computes compound interest; converts a decimal number to binary; checks
    whether two strings are anagrams; implements a linked list; counts the lines of a file;
    filters the even numbers of a list; prints a multiplication table; plays rock, paper,
    scissors; simulates a coin toss; finds the shortest path in a graph; parses a date; logs
    messages to a file; groups words by their length; finds common elements of two lists;
    computes a running average; solves a quadratic equation; encrypts a text with a Caesar
    cipher; prints the calendar of a month; builds a simple web server"""
TEMPLATES = {
    "question": """
        What is {t}? / Explain {t} in simple terms. / Tell me about {t}. / Why is {t}
        important? / How can I learn more about {t}? / What should a beginner know about
        {t}? / Can you explain {t} to a child? / What are common mistakes people make with
        {t}? / Write a short paragraph about {t}. / Describe the history of {t}. / What are
        the advantages and disadvantages of {t}? / Compare {t} and {u}. / How are {t} and
        {u} related? / Write an email to a colleague about {t}. / Write a short essay on
        {t}. / I have a question about {t}. Where do I start? / Write an introduction to an
        article about {t}. / What is the difference between {t} and {u}? / Who would be
        interested in {t}, and why?""",
    "list": """
        List five facts about {t}. / Give me three tips about {t}. / Name ten things related
        to {t}. / Give me some ideas for a project about {t}. / Make a checklist for {t}. /
        What are the steps to get started with {t}? / Suggest seven titles for a book about
        {t}. / What are the pros and cons of {t}? Answer in a list.""",
    "story": """
        Write a short story about {t}. / Write a poem about {t}. / Tell a funny story about
        {t} and {u}. / Write a fairy tale in which {t} plays a part. / Write the first scene
        of a film about {t}. / Write a short dialogue about {t}. / Write a diary entry about
        {t}.""",
    "code": """
        Write a Python function that {c}. / How do I write a program in Python that {c}? /
        Write code that {c}, and explain it. / Show me a JavaScript function that {c}. /
        Write a Python script that {c} and add comments. / Write a Python class that {c},
        with a test.""",
    "summary": """
        Summarize this text: {p} / Summarize the following passage in one or two sentences.
        {p} / What are the main points of this text? {p} / Make this text more concise. {p}
        / Write a title and a summary for the following text. {p}""",
    "rewrite": """
        Rewrite the following text in a friendlier tone. {p} / Correct the mistakes in this
        text: {p} / Rewrite this text for a child. {p} / Turn the following text into a
        list. {p} / Repeat this text, and replace difficult words by simple ones. {p}"""}
HELD_OUT_TOPICS = """
    the steam engine, hummingbirds, honesty, a lighthouse keeper, knitting, lightning, the
    printing press, a lost robot, rice, glaciers, owls, pottery, hash tables, rain gardens,
    the violin, a school canteen, tides, basketball, moving to a new city, volunteering"""
HELD_OUT_TASKS = """
    computes the distance between two points; counts how often each letter occurs; rotates a
    list by k places; finds the second largest number; checks whether a year is a leap year;
    converts Roman numerals to integers; splits a list into chunks; computes the sum of the
    digits of a number; implements merge sort; capitalizes every word"""
HELD_OUT_TEMPLATES = {
    "question": "Please help me understand {t}. / What makes {t} interesting?",
    "list": "Give me a list of six points about {t}. / Which four questions should I ask "
            "about {t}?",
    "story": "Make up a bedtime story about {t}. / Invent a short adventure with {t}.",
    "code": "I need Python code that {c}. / Implement a function that {c} in Python.",
    "summary": "Give a brief summary of the text below. {p} / In a few words, what does this "
               "say? {p}",
    "rewrite": "Put this into simpler language. {p} / Improve the style of this text. {p}"}
SHARES = {"question": 0.34, "list": 0.14, "story": 0.14, "code": 0.16, "summary": 0.12,
          "rewrite": 0.10}


def words(text, mark):
    """Return the parts of a text that a mark separates, each in one line."""
    return [" ".join(part.split()) for part in text.split(mark)]


def prompts(seed, passages, held_out=False):
    """Yield (kind, prompt) without end. `passages` is a list that may grow meanwhile.

    >>> next(prompts(0, []))[0] in TEMPLATES
    True
    """
    rng = np.random.default_rng(seed)
    topics = words(HELD_OUT_TOPICS if held_out else TOPICS, ",")
    tasks = words(HELD_OUT_TASKS if held_out else TASKS, ";")
    templates = {kind: words(text, "/") for kind, text in
                 (HELD_OUT_TEMPLATES if held_out else TEMPLATES).items()}
    while True:
        kind = rng.choice(list(SHARES), p=list(SHARES.values()))
        if kind in ("summary", "rewrite") and not passages:
            continue  # until the model has written some
        t, u = rng.choice(topics, 2, replace=False)
        p = passages[rng.integers(len(passages))] if passages else ""
        yield kind, rng.choice(templates[kind]).format(t=t, u=u, c=rng.choice(tasks), p=p)
