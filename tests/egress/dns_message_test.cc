#include "egress/dns_message.h"

#include <catch2/catch.hpp>
#include <random>

using namespace moorage;
using namespace moorage::egress;

namespace {

using namespace std::string_literals;

std::string number(unsigned value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string wire_name(const std::vector<std::string>& labels) {
  std::string bytes;
  for (const std::string& label : labels) bytes += static_cast<char>(label.size()) + label;
  return bytes + '\0';
}

std::string ask(const std::string& name, unsigned type = 1, unsigned more = 0,
                const std::string& rest = {}) {
  return number(0x1234) + "\x01\x00"s + number(1) + number(0) + number(0) + number(more) + name +
         number(type) + number(1) + rest;
}

const std::string kOpt = "\0"s + number(41) + number(1232) + number(0) + number(0) + number(0);
const std::vector<std::string> kExample = {"API", "example", "com"};

}  // namespace

TEST_CASE("a question is read in the spelling of rules") {
  const auto question = read_question(ask(wire_name(kExample)));
  REQUIRE(question);
  CHECK(question->name == "api.example.com");
  CHECK(question->asks_for_address());
  CHECK_FALSE(question->extended);
  CHECK(question->refusal == DnsCode::no_error);
  CHECK_FALSE(read_question(ask(wire_name(kExample), 28))->asks_for_address());
}

TEST_CASE("an answer repeats the question and carries the address") {
  const auto question = *read_question(ask(wire_name(kExample), 1, 1, kOpt));
  CHECK(question.extended);
  const std::string answer = answer_address(question, *base::parse_address("198.18.0.9"), 60);
  const std::string expected = number(0x1234) + "\x81\x80"s + number(1) + number(1) + number(0) +
                               number(1) + wire_name(kExample) + number(1) + number(1) +
                               number(0xc00c) + number(1) + number(1) + number(0) + number(60) +
                               number(4) + "\xc6\x12\x00\x09"s + kOpt;
  CHECK(answer == expected);
}

TEST_CASE("a refusal says why to those who can read it") {
  const auto plain = *read_question(ask(wire_name(kExample)));
  CHECK(answer_refusal(plain, DnsCode::no_such_name, DnsReason::blocked, "no rule") ==
        number(0x1234) + "\x81\x83"s + number(1) + number(0) + number(0) + number(0) +
            wire_name(kExample) + number(1) + number(1));
  const auto extended = *read_question(ask(wire_name(kExample), 1, 1, kOpt));
  const std::string answer =
      answer_refusal(extended, DnsCode::no_such_name, DnsReason::blocked, "no rule");
  CHECK(answer.ends_with(number(13) + number(15) + number(9) + number(15) + "no rule"));
  CHECK(answer_refusal(extended, DnsCode::no_such_name, DnsReason::blocked, std::string(5000, 'x'))
            .size() < 512);
}

TEST_CASE("no data is an answer without records") {
  const auto question = *read_question(ask(wire_name(kExample), 65));
  const std::string answer = answer_no_data(question);
  CHECK(answer.substr(2, 2) == "\x81\x80"s);
  CHECK(answer.substr(6, 2) == number(0));
}

TEST_CASE("names that are not of hosts have no spelling") {
  for (const auto& labels :
       std::vector<std::vector<std::string>>{{},
                                             {"a.b", "com"},
                                             {"a\0b"s, "com"},
                                             {"b\xc3\xbc", "com"},
                                             {"a b", "com"},
                                             {"127", "0", "0", "1"},
                                             {std::string(63, 'a'), std::string(63, 'b'),
                                              std::string(63, 'c'), std::string(62, 'd')}}) {
    const auto question = read_question(ask(wire_name(labels)));
    REQUIRE(question);
    CHECK(question->name.empty());
  }
}

TEST_CASE("messages other than questions get no answer, or an error") {
  CHECK_FALSE(read_question(""));
  CHECK_FALSE(read_question("short"));
  std::string response = ask(wire_name(kExample));
  response[2] = '\x81';
  CHECK_FALSE(read_question(response));
  CHECK_FALSE(read_question(ask(wire_name(kExample)) + std::string(5000, 'x')));
  std::string update = ask(wire_name(kExample));
  update[2] = '\x28';
  CHECK(read_question(update)->refusal == DnsCode::not_implemented);
  std::string two = ask(wire_name(kExample));
  two[5] = 2;
  CHECK(read_question(two)->refusal == DnsCode::format_error);
  CHECK(read_question(ask("\xc0\x0c"s))->refusal == DnsCode::format_error);
  CHECK(read_question(ask("\x3f"s + "abc"))->refusal == DnsCode::format_error);
  const std::string whole = ask(wire_name(kExample));
  for (size_t size = 12; size < whole.size(); ++size) {
    const auto question = read_question(whole.substr(0, size));
    REQUIRE(question);
    CHECK(question->refusal == DnsCode::format_error);
    const std::string answer = answer_refusal(*question, question->refusal, DnsReason::none, {});
    CHECK(answer.size() == 12);
    CHECK(answer.substr(4, 8) == std::string(8, '\0'));
  }
}

TEST_CASE("damaged questions are read without harm") {
  std::mt19937 random(7);
  const std::string whole = ask(wire_name(kExample), 1, 1, kOpt);
  for (int round = 0; round < 20'000; ++round) {
    std::string message = whole;
    for (unsigned change = random() % 4 + 1; change > 0; --change)
      message[random() % message.size()] = static_cast<char>(random());
    message.resize(random() % (message.size() + 1));
    const auto question = read_question(message);
    if (!question) continue;
    const auto refusal = answer_refusal(*question, DnsCode::no_such_name, DnsReason::blocked, "x");
    CHECK(refusal.starts_with(message.substr(0, 2)));
    CHECK((static_cast<unsigned char>(refusal[2]) & 0x80) != 0);
  }
}
