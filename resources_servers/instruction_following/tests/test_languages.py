"""Distinguishing languages."""

from resources_servers.instruction_following.constraints import constraint

IN_LANGUAGES = {
    "ar": "هذا الكتاب من المكتبة التي في المدينة", "fa": "این کتاب را که در خانه است برای شما می آورم",
    "ur": "یہ کتاب میز پر ہے اور میں اس کو نہیں پڑھتا", "ru": "Эта книга лежит на столе, и я её не читал",
    "uk": "Ця книга лежить на столі, і я її не читав", "bg": "Това е книгата и тя не е скъпа за мен",
    "hi": "यह किताब मेज पर है और मैं इसे नहीं पढ़ता", "mr": "हे पुस्तक आहे आणि ते मी वाचले होते",
    "ne": "यो पुस्तक राम्रो छ र म यसलाई पढ्छु भएको छैन", "ja": "この本は机の上にあります", "zh": "这本书在桌子上",
    "ko": "책이 책상 위에 있습니다", "th": "หนังสืออยู่บนโต๊ะ", "he": "הספר נמצא על השולחן", "el": "Το βιβλίο είναι εδώ",
    "de": "Das ist ein Buch, und es liegt auf dem Tisch", "fr": "Le livre est sur la table, et je ne le lis pas",
    "es": "El libro que está en la mesa es para los niños", "pt": "O livro não é meu, mas é de uma amiga",
    "it": "Il libro è sulla tavola, e non lo leggo perché è di mia madre",
    "sw": "Kitabu hiki ni cha watoto na ni kwa ya",
    "vi": "Quyển sách này là của tôi và tôi không đọc",
    "fi": "Kirja on hyvä, mutta hän ei ole vielä lukenut sitä",
    "pl": "Książka jest na stole, ale się nie czyta, bo to nie jest to",
    "en": "The book is on the table and it is for you",
    "tr": "Bu kitap çok güzel ve benim için bir armağan gibi",
    "nl": "Het boek ligt op de tafel, maar ik lees het niet",
}  # fmt: skip


def test_each_language_differs_from_all_others():
    wrong = []
    checks = {code: constraint("language:response_language", {"language": code}) for code in IN_LANGUAGES}
    for language, text in IN_LANGUAGES.items():
        found = {code for code, check in checks.items() if check.holds_for(text)}
        if found != {language}:
            wrong.append((language, found))
    assert wrong == []


def test_a_language_may_quote_another():
    russian = constraint("language:response_language", {"language": "ru"})
    assert russian.holds_for(IN_LANGUAGES["ru"] + " (the book)")
    assert not russian.holds_for("The book is on the table and it is called книга")


def test_repeated_words_count_each_time():
    text = "The cat, the dog, the bird, the bee: eau de la mer"
    assert constraint("language:response_language", {"language": "en"}).holds_for(text)
    assert not constraint("language:response_language", {"language": "fr"}).holds_for(text)
