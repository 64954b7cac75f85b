"""The ids of IFBench's constraints. To keep the benchmark out of distribution, do not train on them."""

IFBENCH = frozenset(
    f"{family}:{name}"
    for family, names in {
        "count": "conjunctions keywords_multiple numbers person_names pronouns punctuation unique_word_count"
        " word_count_range words_japanese",
        "custom": "character_reverse csv_city csv_quotes csv_special_character date_format_list european_capitals_sort"
        " mcq_count_length multiples reverse_newline sentence_alphabet word_reverse",
        "format": "emoji line_indent list newline no_bullets_bullets no_whitespace options output_template parentheses"
        " quote_unquote quotes sub-bullets thesis title_case",
        "ratio": "overlap sentence_balance sentence_type sentence_words stop_words",
        "repeat": "repeat_change repeat_simple repeat_span",
        "sentence": "alliteration_increment increment keyword",
        "words": "alphabet consonants keywords_specific_position last_first no_consecutive odd_even_syllables"
        " palindrome paragraph_last_first prime_lengths repeats start_verb vowel words_position",
    }.items()
    for name in names.split()
)
