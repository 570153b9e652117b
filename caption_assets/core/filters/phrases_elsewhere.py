"""How models refuse in other languages than English. Pure functions; texts come as lower-case sentences without quotations."""

from __future__ import annotations

import re
from typing import NamedTuple


class _Language(NamedTuple):
    """sorry and cannot: an apology at the beginning, then a negation. unable: an inability in the first person with what was
    asked for, anywhere. other: what the model is, what breaks its rules, or a picture that did not come, at the beginning."""

    sorry: str
    cannot: str
    unable: str
    other: str


_LATIN = (
    _Language(  # German
        r"(?:es )?tut mir (?:\w+ )?leid|leider|entschuldig\w+|verzeih\w+|bedauerlicherweise|ich bedauere?|ich bitte um",
        r"\b(?:kann|konnte|darf|bin|sehe|werde) ich\b|\bich (?:kann|konnte|darf|bin|sehe|werde)\b|\b(?:bild|anfrage|foto|dabei"
        r"|damit)\b.{0,50}\b(?:nicht|kein)|\bkein (?:bild|foto)",
        r"\b(?:ich|mir)\b.{0,60}?\b(?:nicht|nichts|keine?\w*|unmöglich)\b.{0,50}?(?:sagen|beschreib|identifizier|helf|sehen"
        r"|erkenn|bereitstell|anzeig|in der lage|erstell|angaben|auskunft|anfrage|(?:foto|bild)(?:er|s|es)?\b|zugriff)",
        r"als (?:ki|künstliche|sprachmodell|assistent|reines)|ich bin (?:nur )?(?:eine? )?(?:ki\b|künstliche|sprachmodell)"
        r"|bitte (?:laden|lade|senden|schicken)"
        r".{0,20}(?:bild|foto)|ich sehe kein|(?:das|dieses|ihr|dein) (?:bild|foto)\b.{0,30}\b(?:nicht|verstößt"
        r"|kann nicht)\b.{0,30}(?:geladen|richtlin|beschrieb|"
        r"angezeigt|verarbeitet|vor\b)|es wurde kein (?:bild|foto)",
    ),
    _Language(  # French
        r"(?:je suis (?:\w+ )?)?(?:désolée?|navrée?)\b|malheureusement|je regrette|toutes mes excuses|veuillez m'excuser"
        r"|excusez-moi|je m'excuse|pardon",
        r"\b(?:je |il )?(?:ne |n'|m'est )(?:peux|puis|suis|pourrai|saurais|dispose|vois|impossible|ai pas|est pas)|impossible",
        r"\b(?:je|il) (?:ne |n'|m'est )(?:peux|puis|suis|pourrai|saurais|dispose|impossible|ai pas|dois|vois pas).{0,60}?"
        r"(?:décri|identifi|aider|voir\b|fourni|l'image|cette image|d'images|photo|demande|commenter|répondre)",
        r"en tant qu(?:'|e ).{0,6}(?:ia|intelligence|modèle|assistant)|je suis (?:une? )?(?:ia|intelligence artificielle"
        r"|modèle de langage)|je ne vois (?:aucune|pas)"
        r"|aucune image|(?:cette|l')? ?image (?:ne peut|n'a pas|enfreint|viole)",
    ),
    _Language(  # Spanish
        r"(?:lo )?siento|(?:lo )?lamento|lamentablemente|desafortunadamente|disculp\w+|mis disculpas|perdona?|perdone"
        r"|perdón|me disculpo"
        r"|por desgracia|me temo que",
        r"\bno (?:puedo|me es|soy|estoy|tengo|es posible|dispongo|se puede|podré|hay|veo)|\b(?:infringe|viola|incumple)",
        r"\bno (?:puedo|me es|soy capaz|tengo (?:la|acceso|permi|forma)|estoy (?:autoriz|en condic|program|dise)\w*|podré|debo"
        r"|dispongo)\b.{0,40}?"
        r"(?:describ|identific|ayud|\bver\b|proporcion|imagen|imágenes|la foto|solicitud|analiz|coment|respond)",
        r"(?:como|soy) (?:solo )?(?:una? )?(?:modelo de|ia\b|inteligencia artificial|asistente)|no (?:veo|se ha adjuntado"
        r"|has adjuntado|hay) (?:ninguna|la|una) (?:imagen|foto)"
        r"|(?:esta|esa|la|su) (?:imagen|solicitud|foto) (?:no (?:puede|se puede|se ha)|infringe|viola|incumple)",
    ),
    _Language(  # Portuguese
        r"desculp\w+|sinto muito|lamento|infelizmente|lamentavelmente|pe[çc]o desculpas?|me desculpe|perdão",
        r"\bnão (?:posso|consigo|sou|é possível|tenho|estou|pude|há|poderei|vejo)",
        r"\bnão (?:posso|consigo|sou capaz|me é possível|tenho (?:a|acesso|permi\w+|como)|estou (?:autoriz|program|em condi)\w*"
        r"|devo)\b.{0,40}?"
        r"(?:descrev|identific|ajudar|\bver\b|fornec|imagem|imagens|a foto|solicitaç|analis|reconhec|respond)",
        r"(?:como|sou) (?:apenas )?(?:uma? )?(?:modelo de|ia\b|inteligência artificial|assistente)|não (?:vejo|há"
        r"|recebi) (?:nenhuma|a|uma) (?:imagem|foto)",
    ),
    _Language(  # Italian
        r"mi (?:dispiace|spiace|scuso)|purtroppo|(?:sono )?spiacente|scusa\w*|chiedo scusa",
        r"\bnon (?:posso|sono|riesco|è possibile|ho|mi è|vedo)",
        r"\bnon (?:posso|sono in grado|sono autorizzat\w|riesco a|mi è possibile|ho (?:accesso|la possib|il perm)\w*"
        r"|devo)\b.{0,40}?(?:descriv|identific|aiut|vedere|fornire|immagin|la foto|richiest|riconosc|analizz|rispond)",
        r"(?:in quanto|come|sono) (?:un |un')?(?:modello|ia\b|intelligenza artificiale|assistente)|non (?:vedo|c'è"
        r"|ho ricevuto) (?:alcuna|nessuna|l') ?(?:immagine|foto)",
    ),
    _Language(  # Dutch
        r"het spijt me|sorry|helaas|mijn excuses|excuses|excuseer",
        r"\b(?:ik kan|kan ik|ik mag|mag ik|niet|geen)\b",
        r"\b(?:ik|mij)\b.{0,60}?\b(?:niet|geen)\b.{0,40}?(?:beschrij|identific|help|zien|herken|in staat|beantwoord)",
        r"als (?:een )?(?:ai\b|taalmodel|kunstmatige)|ik zie geen (?:afbeelding|foto|beeld)|de (?:afbeelding|foto) (?:kan"
        r"|kon) niet",
    ),
    _Language(  # Polish
        r"przepraszam|przykro mi|niestety|wybacz\w*",
        r"\bnie (?:mogę|jestem|mam|potrafię|da się|udało|widzę)",
        r"\bnie (?:mogę|jestem w stanie|potrafię) (?:opis|zidentyf|pomóc|rozpozn|zobacz|wyświet|odpow|podać)",
        r"jako (?:model|si\b|sztuczna|ai\b)|nie widzę (?:żadne|obraz|zdjęci)",
    ),
    _Language(  # Czech and Slovak
        r"omlouvám se|je mi líto|bohužel|promiňte|ľutujem|prepáčte",
        r"\b(?:nemohu|nemůžu|nelze|nejsem|nedokážu|nemôžem|neviem|nevidím)",
        r"\b(?:nemohu|nemůžu|nemôžem|nedokážu) (?:\w+ ){0,3}(?:popsat|identifik|pomoci|opísať|pomôcť)",
        r"jako (?:ai\b|jazykový model)|nevidím žádn",
    ),
    _Language(  # Swedish, Danish, Norwegian
        r"jag är (?:ledsen|hemskt)|tyvärr|förlåt|(?:jag |jeg )?bekla[gr]\w*|desværre|undskyld|dessverre|jeg er ked",
        r"\b(?:inte|ikke|ingen|inget)\b",
        r"\b(?:(?:jag|jeg) kan|kan (?:jag|jeg))\b.{0,20}?\b(?:inte|ikke)\b.{0,20}?(?:beskriv|identifi|hj[äæe]lp|se\b)",
        r"som (?:en )?(?:ai\b|språkmodell|sprogmodel)|(?:jag|jeg) ser ing",
    ),
    _Language(  # Turkish
        r"üzgünüm|maalesef|özür dilerim|ne yazık ki|kusura bakmayın",
        r"[ae]m[ae]m\b|[ae]m[ıi]yorum|m[ıi]yor|[ae]m[ae]y[ıi]z|değil|\byok",
        r"(?:görsel|resim|resm|fotoğraf|isteğ|istek|kişi|kimli)\w*.{0,30}?[ae](?:m[ae]m|m[ıi]yorum)\b",
        r"bir yapay zek[aâ]",
    ),
    _Language(  # Vietnamese
        r"(?:tôi )?(?:rất )?(?:xin lỗi|tiếc|lấy làm tiếc)",
        r"không thể|không được|không có|chưa thể",
        r"tôi không (?:thể|được phép).{0,30}?(?:mô tả|xác định|giúp|xem|hình|ảnh|yêu cầu)",
        r"là (?:một )?(?:ai\b|mô hình|trợ lý)|tôi không thấy (?:hình|ảnh)",
    ),
    _Language(  # Indonesian and Malay
        r"(?:(?:saya )?mohon |(?:saya )?minta )?maaf|sayangnya",
        r"\b(?:tidak|tak) (?:dapat|bisa|mampu|boleh|ada)",
        r"\bsaya (?:tidak|tak) (?:dapat|bisa|mampu)\b.{0,40}?(?:deskripsi|bantu|identifikasi|lihat|gambar|foto|permintaan)",
        r"sebagai (?:model|ai\b|asisten)",
    ),
    _Language(
        r"valitettavasti|olen pahoillani|pahoittelen|anteeksi",
        r"\ben (?:voi|pysty|osaa|ole|näe)|ei ole",
        r"\ben (?:voi|pysty)\b.{0,30}?(?:kuvail|tunnist|autta)",
        "olen tekoäly",
    ),
    _Language(
        r"sajnálom|sajnos|elnézést|bocsánat",
        r"\bnem (?:tud|lehet|áll|vagyok|látok)",
        r"\bnem tud(?:om|ok)\b.{0,30}?(?:leír|azonosít|segít)",
        r"mint (?:ai\b|nyelvi modell)",
    ),
    _Language(
        r"îmi pare rău|ne pare rău|din păcate|scuze",
        r"\bnu (?:pot|sunt|am|este|văd)",
        r"\bnu pot\b.{0,20}?(?:descrie|identific|ajuta)",
        r"ca (?:model|ia\b)",
    ),
)

_OTHER_SCRIPTS = (
    _Language(  # Chinese
        "(?:我|您好，?)?(?:很|非常|十分|真的|实在|深感)?(?:抱歉|对不起|遗憾|不好意思|對不起)",
        "无法|不能|不可以|没办法|没有|不便|未能|無法|违反|看不",
        "(?:^|[，,、]|我|您好|本ai|本助手)(?:目前|现在|暂时|也|还)?(?:无法|不能|不可以|没有办法|没办法|不会|無法|看不到|不便"
        "|不方便|没有(?:权限|能力|办法)?)(?:为您|帮您|对)?.{0,12}?"
        "(?:描述|识别|查看|看到|看见|提供|协助|帮助|处理|生成描述|确认|访问|回答|收到.{0,4}图|请求)",
        "作为.{0,8}(?:ai|人工智能|语言模型|助手)|我(?:只)?是.{0,8}(?:ai|人工智能|语言模型|助手)|(?:该|这|此|您|图).{0,12}(?:违反"
        "|不符合).{0,16}(?:规定|政策|准则|规范)"
        "|请(?:您)?(?:重新)?(?:上传|提供|发送).{0,8}(?:图|照片)|(?:图片|图像|照片).{0,6}(?:加载失败|无法加载|无法显示|未上传"
        "|不存在)",
    ),
    _Language(  # Japanese
        "(?:大変|誠に|本当に)?(?:申し訳|すみません|ごめんなさい|恐れ入り|恐縮|残念ながら|あいにく)",
        "ません|かねます|ない",
        "(?:画像|写真|人物|個人|ご?依頼|ご?要望|リクエスト|質問|内容).{0,24}?(?:説明|特定|識別|確認|お手伝い|お応え|お答え|表示"
        "|描写|対応|回答)[^。]{0,8}(?:できません|できかねます|かねます|控え)|(?:お答え|お応え|回答|対応"
        "|お手伝い)[^。]{0,8}かねます",
        "(?:私|わたくし|当方)は.{0,12}(?:ai|人工知能|言語モデル|アシスタント)|ai(?:として|アシスタント|ですので|なので)"
        "|(?:画像|写真)(?:が|は).{0,4}(?:添付|表示|見つか|読み込|アップロード).{0,12}(?:ません|ない|いないよう)",
    ),
    _Language(  # Korean
        "(?:대단히 |정말 )?(?:죄송|미안)(?:하지만|합니다|해요)|안타깝게도|유감스럽게도",
        "없습니다|못합니다|어렵습니다|않습니다|없어요|안 됩니다",
        "(?:저는|제가|나는|이미지|사진|요청|질문|인물|신원|사람).{0,30}?(?:설명|확인|식별|처리|제공|도와|도움|볼|답변"
        "|답)[^.]{0,12}(?:수 없|못합니다)",
        "(?:저는|나는) .{0,12}(?:ai|인공지능|언어 모델)|(?:첨부된 |제공된 )?(?:이미지|사진)(?:가|이) (?:보이지|없습니다"
        "|첨부되지)",
    ),
    _Language(  # Russian
        r"извин\w+|простите|к сожалению|прошу прощения|мне (?:очень )?жаль|сожалею|приношу извинения",
        r"\bне (?:могу|в состоянии|удалось|имею|получ|способ|вижу|смогу|загру)|невозможно|нет возможности",
        r"\b(?:не (?:могу|в состоянии|смогу|вижу)|мне (?:не |нельзя )|у меня нет|я не)\b.{0,40}?(?:опис|определ|помо[гч]|идентиф"
        r"|распозна|видеть|предостав|изображ|картин|фото|просмат|ответ)",
        r"(?:как|я) (?:\w+ )*(?:ии\b|языковая модель|искусственный интеллект)|я не вижу (?:изображ|картин|фото)|(?:описать"
        r"|определить|распознать) .{0,30}невозможно"
        r"|(?:это |данное )?(?:изображение|фото) (?:нарушает|не может|не загру|не откры|недоступ)",
    ),
    _Language(  # Ukrainian
        r"вибач\w*|на жаль|перепрошую|мені шкода|пробачте",
        r"\bне (?:можу|в змозі|маю|вдалося|здат|бачу)",
        r"\bне (?:можу|в змозі)\b.{0,40}?(?:опис|визнач|допомог|ідентиф|розпізна|бачити|зображ)",
        r"як (?:ші\b|мовна модель)|я не бачу (?:зображ|фото)",
    ),
    _Language(
        r"λυπάμαι|συγγνώμη|δυστυχώς",
        r"\bδεν (?:μπορώ|είμαι|είναι|έχω|βλέπω)",
        r"\bδεν μπορώ\b.{0,20}?(?:περιγρά|βοηθή|αναγνωρί|δω)",
        "ως (?:γλωσσικό μοντέλο|τεχνητή)",
    ),
    _Language(  # Arabic
        "عذر|آسف|أعتذر|للأسف|معذرة|أنا آسف|نعتذر|اعتذر",
        "لا (?:أستطيع|يمكنني|أقدر|يمكن)|غير قادر|لم أتمكن|لن أتمكن",
        "لا (?:أستطيع|يمكنني|أقدر).{0,20}?(?:وصف|المساعدة|تحديد|رؤية|مساعدتك|التعرف|الإجابة)",
        "(?:بصفتي|كنموذج|أنا) (?:نموذج|ذكاء)",
    ),
    _Language(
        "متأسفم|متاسفم|ببخشید|معذرت|متأسفانه",
        "نمی|نیست",
        "(?:من )?نمی.{0,30}?(?:توصیف|شناسایی|کمک)",
        "به عنوان (?:یک )?(?:هوش|مدل)",
    ),
    _Language(
        "(?:אני )?(?:מצטער|סליחה|מתנצל|לצערי)",
        "לא (?:יכול|ניתן|אוכל|מסוגל)|אין",
        "אני לא (?:יכול|מסוגל).{0,20}?(?:לתאר|לזהות|לעזור)",
        "כמודל שפה",
    ),
    _Language(
        "(?:मुझे )?(?:क्षमा|माफ़|माफ|खेद|दुर्भाग्य)",
        "नहीं|असमर्थ",
        "मैं .{0,40}?(?:वर्णन|मदद|पहचान|सहायता).{0,16}(?:नहीं|असमर्थ)",
        "एक (?:एआई|भाषा मॉडल)",
    ),
    _Language(
        "(?:আমি )?(?:দুঃখিত|ক্ষমা)",
        "পারব না|পারি না|পারছি না|সম্ভব নয়",
        "আমি .{0,40}?(?:বর্ণনা|সাহায্য).{0,12}(?:পারব না|পারি না)",
        "একটি (?:এআই|ভাষা মডেল)",
    ),
    _Language(
        "(?:ต้อง)?(?:ขออภัย|ขอโทษ|เสียใจ)",
        "ไม่สามารถ|ไม่ได้|ไม่อาจ",
        "(?:ฉัน|ผม|ดิฉัน)ไม่สามารถ(?:อธิบาย|ระบุ|ช่วย|ดูภาพ)",
        "ในฐานะ(?:ที่เป็น)?(?:ai|ปัญญา|โมเดล)",
    ),
)

_SHOWN = re.compile(
    r"schild|aufschrift|plakat|banner|\btext|worten|schreibt|cartel|pancarta|\bdice\b|letrero|frase|affiche|panneau|indique"
    r"|\bdit\b|texte|pancarte|cartello|scritta|"
    r"placa|\bdiz\b|faixa|bord\b|tekst|napis|tabliczk|надпис|плакат|табличк|вывеск|写着|写有|印着|文字|標語|と書|看板|적힌|적혀"
    r"|문구|표지판"
)


def _compiled(languages: tuple[_Language, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What is matched at the beginning of a sentence, and what is looked for anywhere in it."""
    beginning = "|".join(rf"(?:{x.sorry}).{{0,80}}?(?:{x.cannot})|(?:{x.other})" for x in languages)
    return re.compile(beginning), re.compile("|".join(f"(?:{x.unable})" for x in languages))


_LATIN_PATTERNS = _compiled(_LATIN)
_OTHER_PATTERNS = _compiled(_OTHER_SCRIPTS)


def refuses_elsewhere(sentence: str) -> bool:
    """Whether a model refuses in this sentence, in a language other than English."""
    highest = max(sentence)
    beginning, anywhere = _LATIN_PATTERNS if highest < "\u0250" or "\u1ea0" <= highest <= "\u2122" else _OTHER_PATTERNS
    if beginning.match(sentence):
        return True
    return (match := anywhere.search(sentence)) is not None and not _SHOWN.search(sentence, 0, match.start())
