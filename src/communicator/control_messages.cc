// SPDX-License-Identifier: Apache-2.0
// control_messages.cc: messages as bytes and back.

#include "communicator/control_messages.h"

#include "base/printable.h"
#include "bootstrap/bytes.h"

namespace ciuic::control {

static std::string_view cut(const std::string& text) {
  return std::string_view(text).substr(0, kMaxTextBytes);
}

std::string encode(const Message& message) {
  bootstrap::ByteWriter out;
  out.u8(static_cast<uint8_t>(message.kind));
  out.u8(static_cast<uint8_t>(message.status.code()));
  out.u32(static_cast<uint32_t>(message.about));
  out.u8(static_cast<uint8_t>((message.flag ? 1 : 0) | (message.is_late ? 2 : 0)));
  out.u32(message.sequence).u32(message.next).u32(message.lowest).u32(message.fingerprint);
  out.text(cut(message.operation)).text(cut(message.status.message())).text(cut(message.text));
  return out.take();
}

Result<Message> decode_message(std::string_view bytes) {
  bootstrap::ByteReader in(bytes);
  Message message;
  const uint8_t kind = in.u8();
  const uint8_t code = in.u8();
  message.about = static_cast<int>(in.u32());
  const uint8_t flags = in.u8();
  message.flag = (flags & 1) != 0;
  message.is_late = (flags & 2) != 0;
  message.sequence = in.u32();
  message.next = in.u32();
  message.lowest = in.u32();
  message.fingerprint = in.u32();
  message.operation = printable(in.text(kMaxTextBytes));
  std::string status_text = printable(in.text(kMaxTextBytes));
  message.text = printable(in.text(kMaxTextBytes));
  const bool known = kind >= static_cast<uint8_t>(MessageKind::kAlive) &&
                     kind <= static_cast<uint8_t>(MessageKind::kGivenUp) &&
                     code <= static_cast<uint8_t>(StatusCode::kSystem) && flags <= 3;
  if (!known || !in.complete()) {
    return Status(StatusCode::kInvalidArgument, "no message of the control plane");
  }
  message.kind = static_cast<MessageKind>(kind);
  message.status = {static_cast<StatusCode>(code), std::move(status_text)};
  // A group that ended without an error would give out results that are not there.
  const bool ends = message.kind == MessageKind::kCause || message.kind == MessageKind::kGone ||
                    message.kind == MessageKind::kDecision || message.kind == MessageKind::kGivenUp;
  if (ends && message.status.ok()) {
    return Status(StatusCode::kInvalidArgument, "an end without an error");
  }
  return message;
}

}  // namespace ciuic::control
