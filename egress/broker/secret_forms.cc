#include "egress/broker/secret_forms.h"

#include <openssl/evp.h>

#include <algorithm>
#include <functional>

namespace moorage::egress {
namespace {

constexpr std::string_view kLowerDigits = "0123456789abcdef";
constexpr std::string_view kUpperDigits = "0123456789ABCDEF";

using Escape = std::function<std::string(char)>;

std::string digits_of(char c, std::string_view digits) {
  const auto byte = static_cast<unsigned char>(c);
  return {digits[byte >> 4], digits[byte & 15]};
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string escaped(const std::string& text, std::string_view special, const Escape& escape) {
  std::string all;
  for (const char c : text) all += special.find(c) == special.npos ? std::string(1, c) : escape(c);
  return all;
}

std::string in_case(std::string text, char first, char last, int distance) {
  for (char& c : text) {
    if (c >= first && c <= last) c = static_cast<char>(c + distance);
  }
  return text;
}

// Each keeps other characters unescaped: RFC 3986, Python, JavaScript, HTML forms.
void add_url_forms(const std::string& secret, std::vector<std::string>& forms) {
  for (const std::string_view kept : {"-._~", "-._~/", "-._~!*'()", "-._*"}) {
    for (const std::string_view digits : {kUpperDigits, kLowerDigits}) {
      std::string form;
      for (const char c : secret) {
        const bool stays = is_letter_or_digit(c) || kept.find(c) != kept.npos;
        form += stays ? std::string(1, c) : "%" + digits_of(c, digits);
      }
      forms.push_back(form);
    }
  }
}

// With "/" escaped or not, and with what is special in HTML as "<" or not.
void add_json_forms(const std::string& secret, std::vector<std::string>& forms) {
  const Escape backslash = [](char c) { return std::string("\\") + c; };
  const Escape upper = [](char c) { return "\\u00" + digits_of(c, kUpperDigits); };
  const Escape lower = [](char c) { return "\\u00" + digits_of(c, kLowerDigits); };
  for (const std::string_view special : {"\"\\", "\"\\/"}) {
    const std::string form = escaped(secret, special, backslash);
    forms.push_back(form);
    for (const std::string_view in_html : {"<>&", "<>&'+`"}) {
      for (const Escape& escape : {upper, lower}) forms.push_back(escaped(form, in_html, escape));
    }
  }
}

void add_html_forms(const std::string& secret, std::vector<std::string>& forms) {
  const auto name = [](char c) -> std::string {
    if (c == '&') return "&amp;";
    if (c == '<') return "&lt;";
    return c == '>' ? "&gt;" : "&quot;";
  };
  forms.push_back(escaped(secret, "&<>\"", name));
  for (const std::string_view quoted : {"'", "'/", "'/=`", "'+"}) {
    forms.push_back(escaped(escaped(secret, "&<>\"", name), quoted,
                            [](char c) { return "&#" + std::to_string(int{c}) + ";"; }));
    for (const std::string_view digits : {kUpperDigits, kLowerDigits}) {
      forms.push_back(escaped(escaped(secret, "&<>\"", name), quoted,
                              [digits](char c) { return "&#x" + digits_of(c, digits) + ";"; }));
    }
  }
}

// Base64 of a text that contains the secret somewhere: three forms, by where its bytes lie in the
// groups of three. Characters that neighbors share are left out.
void add_base64_forms(const std::string& secret, std::vector<std::string>& forms) {
  for (size_t before = 0; before < 3; ++before) {
    const std::string text = std::string(before, '\0') + secret;
    std::string encoded(4 * ((text.size() + 2) / 3) + 1, '\0');
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                    reinterpret_cast<const unsigned char*>(text.data()),
                    static_cast<int>(text.size()));
    const size_t first = (before * 8 + 5) / 6;
    const size_t last = text.size() * 8 / 6;
    std::string form = encoded.substr(first, last - first);
    forms.push_back(form);
    std::ranges::replace(form, '+', '-');
    std::ranges::replace(form, '/', '_');
    forms.push_back(form);
  }
}

}  // namespace

std::vector<std::string> secret_forms(const std::string& secret) {
  std::vector<std::string> forms{secret};
  add_url_forms(secret, forms);
  add_json_forms(secret, forms);
  add_html_forms(secret, forms);
  add_base64_forms(secret, forms);
  for (const std::string_view digits : {kLowerDigits, kUpperDigits}) {
    std::string form;
    for (const char c : secret) form += digits_of(c, digits);
    forms.push_back(form);
  }
  forms.push_back(in_case(secret, 'A', 'Z', 'a' - 'A'));
  forms.push_back(in_case(secret, 'a', 'z', 'A' - 'a'));
  std::vector<std::string> each;
  for (std::string& form : forms) {
    if (std::ranges::find(each, form) == each.end()) each.push_back(std::move(form));
  }
  return each;
}

}  // namespace moorage::egress
