"""Keywords, questions and stop markers in several languages."""

import pytest

from responses_api_agents.user_simulation_agent.dialogue import Line
from responses_api_agents.user_simulation_agent.languages import Word, before, is_question
from responses_api_agents.user_simulation_agent.users import Said, ScriptedUser, UserProfile

FOUND = [
    ("几点", "请问您想预订几点的位子？"),
    ("什么时候", "您什么时候方便？"),
    ("何時", "ご予約は何時がよろしいでしょうか。"),
    ("ナンジ", "ﾅﾝｼﾞ がいいですか？"),
    ("AI", "AIとは何ですか？"),
    ("time", "ＴＩＭＥは？"),
    ("13", "13時ですね。"),
    ("กี่โมง", "คุณต้องการจองเวลากี่โมงครับ"),
    ("متى", "متى تريد الحجز؟"),
    ("الوقت", "ما هو الوَقْت المناسب لك؟"),
    ("الوقت", "ما \u200fالوقـــت\u200f؟"),
    ("straße", "In welcher STRASSE wohnen Sie?"),
    ("STRASSE", "In welcher Straße wohnen Sie?"),
    ("größe", "Welche GRÖ\u00dfE? Oder: welche GRO\u0308SSE?"),
    ("istanbul", "İSTANBUL mu, Ankara mı?"),
    ("İstanbul", "istanbul'dan mı?"),
    ("ışık", "IŞIK açık mı?"),
    ("time", "WHAT TIME?"),
    ("Ώρα", "Τι ώρα θέλετε;"),
    ("σας", "ΤΟ ΟΝΟΜΑ ΣΑΣ;"),
    ("몇 시", "몇 시에 오시겠어요?"),
    ("시간", "편한 시간은 언제인가요?"),
    ("कब", "आप कब आएँगे?"),
    ("когда", "Когда вам удобно?"),
    ("קמתי", "מתי? קמתי!"),
]
NOT_FOUND = [
    ("time", "Sometimes it is full."),
    ("time", "timeless"),
    ("3", "13時ですね。"),
    ("sinir", "Sınır nerede?"),
    ("straße", "Straßenbahn?"),
    ("कब", "कबीर कौन है?"),
    ("시간", "한시간"),
    ("وقت", "توقيت"),
    ("ก", "กี่โมง"),
    ("何時", "何日ですか。"),
]


@pytest.mark.parametrize(("word", "text"), FOUND)
def test_word_is_found_in_its_language(word, text):
    assert Word(word).is_in(text)


@pytest.mark.parametrize(("word", "text"), NOT_FOUND)
def test_part_of_another_word_is_not_found(word, text):
    assert not Word(word).is_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "几点？",
        "您需要靠窗的座位吗。好的",
        "何名様ですか。",
        "ご希望の時間をお聞かせいただけますか",
        "どちらがよろしいでしょうか。\nお待ちしております。",
        "متى تريد الحجز؟",
        "Τι ώρα θέλετε;",
        "¿A qué hora",
        "몇 시에 오시겠어요?",
        "Wirklich⁉",
    ],
)
def test_question_is_recognized_in_its_language(text):
    assert is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "已为您预订。",
        "ご予約を承りました。",
        "どこか静かな席をご用意します。",
        "いつか。",
        "تم الحجز.",
        "Done; thanks.",
        "Το έκλεισα.",
        "",
    ],
)
def test_statement_is_not_a_question(text):
    assert not is_question(text)


@pytest.mark.parametrize(
    ("marker", "text", "farewell"),
    [
        ("###STOP###", "谢谢！###STOP###", "谢谢！"),
        ("###STOP###", "ありがとう。＃＃＃ＳＴＯＰ＃＃＃", "ありがとう。"),
        ("###STOP###", "شكراً!\u200f###\u200fSTOP###", "شكراً!\u200f"),
        ("【終了】", "では、失礼します。【終了】さようなら", "では、失礼します。"),
        ("再见", "好的，再见。", "好的，"),
        ("END", "Please send it at the end.", None),
        ("###STOP###", "ｶﾞ stop", None),
    ],
)
def test_stop_marker_ends_text_in_any_width(marker, text, farewell):
    assert before(marker, text) == farewell


async def test_scripted_user_converses_in_chinese():
    profile = UserProfile.model_validate(
        {
            "goal": "我想订一张桌子。",
            "answers": [
                {"asked": ["几点", "什么时间"], "says": "晚上七点半。"},
                {"asked": ["几位", "多少人"], "says": "四个人。"},
            ],
            "otherwise": "都可以。",
        }
    )
    user = ScriptedUser(profile)
    said = [
        await user.speak([Line("assistant", heard)])
        for heard in ("请问几点、几位？", "需要靠窗的位子吗。", "已为您订好四位，晚上七点半。")
    ]
    assert said == [
        Said("晚上七点半。 四个人。", is_satisfied=False),
        Said("都可以。", is_satisfied=False),
        Said("", is_satisfied=True),
    ]
