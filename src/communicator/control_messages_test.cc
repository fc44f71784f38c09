// SPDX-License-Identifier: Apache-2.0
// control_messages_test.cc: what is no message is refused; what is one reads as it was written.

#include "communicator/control_messages.h"

#include <gtest/gtest.h>

namespace ciuic::control {
namespace {

Message full_message(MessageKind kind) {
  return {.kind = kind,
          .status = {StatusCode::kTimeout, "late"},
          .about = 3,
          .flag = true,
          .is_late = true,
          .sequence = 0xffff'fffe,
          .next = 7,
          .fingerprint = 0x1234'5678,
          .operation = "all_reduce",
          .text = "rank 3 has not called it"};
}

TEST(ControlMessages, ReadAsTheyWereWritten) {
  for (int kind = 1; kind <= static_cast<int>(MessageKind::kDecision); ++kind) {
    const Message message = full_message(static_cast<MessageKind>(kind));
    const Result<Message> read = decode_message(encode(message));
    ASSERT_TRUE(read.ok()) << kind;
    EXPECT_EQ(encode(*read), encode(message));
    EXPECT_EQ(read->status.message(), "late");
    EXPECT_EQ(read->about, 3);
  }
}

TEST(ControlMessages, WhatIsCutOffOrTooLongIsNone) {
  const std::string bytes = encode(full_message(MessageKind::kCause));
  for (size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_FALSE(decode_message(std::string_view(bytes).substr(0, count)).ok()) << count;
  }
  EXPECT_FALSE(decode_message(bytes + "x").ok());
  EXPECT_FALSE(decode_message(std::string(1, '\x63') + bytes.substr(1)).ok()) << "no kind";
}

TEST(ControlMessages, LongTextsAreCut) {
  Message message;
  message.text = std::string(100'000, 'x');
  const std::string bytes = encode(message);
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  EXPECT_EQ(decode_message(bytes)->text.size(), kMaxTextBytes);
}

TEST(ControlMessages, AnEndWithoutAnErrorIsNone) {
  for (const MessageKind kind : {MessageKind::kCause, MessageKind::kGone, MessageKind::kDecision}) {
    Message message = full_message(kind);
    message.status = {};
    EXPECT_EQ(decode_message(encode(message)).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(decode_message(encode({.kind = MessageKind::kAlive})).ok());
}

TEST(ControlMessages, TextsAreOneLineOfUtf8) {
  Message message = full_message(MessageKind::kMissing);
  message.text = "a\x1b\xff\n";
  EXPECT_EQ(decode_message(encode(message))->text, "a?? ");
}

}  // namespace
}  // namespace ciuic::control
